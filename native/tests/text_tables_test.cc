#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "csv.h"
#include "json_rows.h"

namespace recmap {
namespace {

using Code = TextFaultCode;

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TextColumn column(Dtype dtype, bool given = false, bool nullable = false, uint8_t depth = 0) {
  TextColumn made{{"x"}, dtype, dtype == Dtype::kBytes, depth, given, nullable};
  made.null_items = nullable && depth != 0;
  return made;
}

Code csv_code(std::string_view text, const TextColumn& only) {
  const std::vector<TextColumn> columns(2, only);
  std::vector<TextValues> values;
  for (const TextColumn& each : columns) values.emplace_back(each);
  uint64_t rows = 0;
  return parse_csv(bytes_of(std::string(text) + ",\"1\"\n"), {'"', ','}, values, rows).code;
}

TEST(CsvNumbersLookLikeNumbersUnlessTheirTypeIsGiven) {
  struct Number {
    std::string_view text;
    Dtype dtype;
    Code inferred, given;
  };
  const Dtype whole = Dtype::kInt64, real = Dtype::kFloat64;
  for (const Number& number :
       std::vector<Number>{{"0", whole, Code::kNone, Code::kNone},
                           {"-9223372036854775808", whole, Code::kNone, Code::kNone},
                           {"9223372036854775808", whole, Code::kOutOfRange, Code::kOutOfRange},
                           {"007", whole, Code::kNotNumber, Code::kNone},
                           {"-0", whole, Code::kNotNumber, Code::kNone},
                           {"+1", whole, Code::kNotNumber, Code::kNone},
                           {" 1", whole, Code::kNotNumber, Code::kNone},
                           {"0x10", whole, Code::kNotNumber, Code::kNotNumber},
                           {"1.0", whole, Code::kNotWhole, Code::kNotWhole},
                           {"1e5", whole, Code::kNotWhole, Code::kNotWhole},
                           {"300", Dtype::kUint8, Code::kOutOfRange, Code::kOutOfRange},
                           {"-1", Dtype::kUint8, Code::kOutOfRange, Code::kOutOfRange},
                           {"1.5", real, Code::kNone, Code::kNone},
                           {"1e-400", real, Code::kNone, Code::kNone},
                           {"1e400", real, Code::kOutOfRange, Code::kOutOfRange},
                           {"9007199254740993", real, Code::kInexact, Code::kNone},
                           {"9007199254740994", real, Code::kNone, Code::kNone},
                           {"nan", real, Code::kNotNumber, Code::kNone},
                           {"-inf", real, Code::kNotNumber, Code::kNone},
                           {"0x1p3", real, Code::kNotNumber, Code::kNotNumber},
                           {"1,5", real, Code::kManyFields, Code::kManyFields},
                           {"yes", Dtype::kBool, Code::kNotBool, Code::kNotBool},
                           {"", real, Code::kNull, Code::kNull}}) {
    const check::Scope scope(number.text);
    CHECK_EQ(csv_code(number.text, column(number.dtype)), number.inferred);
    CHECK_EQ(csv_code(number.text, column(number.dtype, true)), number.given);
  }
}

TEST(CsvFieldsAreUnquoted) {
  const std::string text = "\"a\"\"b\",x\r\n,\"\"\n\"\n\",\xc3\xa9";
  const std::vector<TextColumn> columns(2, column(Dtype::kBytes, false, true));
  std::vector<TextValues> values(columns.begin(), columns.end());
  uint64_t rows = 0;
  CHECK(!parse_csv(bytes_of(text), {'"', ','}, values, rows));
  CHECK_EQ(rows, 3u);
  CHECK_EQ(std::string(values[0].data().data(), values[0].data().data() + 4), "a\"b\n");
  CHECK_EQ(values[0].levels()[0].nulls.size(), 2u);  // the second is null
  CHECK_EQ(values[1].levels()[0].nulls.size(), 0u);
  CHECK_EQ(csv_code("\xff", column(Dtype::kBytes)), Code::kNotUtf8);
}

Code json_code(const std::string& line, const TextColumn& only, bool strict = true) {
  const std::vector<TextColumn> columns(1, only);
  std::vector<TextValues> values(columns.begin(), columns.end());
  uint64_t rows = 0;
  // From an allocation of exactly the size, so that the sanitizer sees every byte beyond.
  const std::vector<uint8_t> exact(line.begin(), line.end());
  return parse_json(exact, JsonColumns(columns), strict, values, rows).code;
}

TEST(JsonIsStrict) {
  const TextColumn text = column(Dtype::kBytes), real = column(Dtype::kFloat64);
  const TextColumn list = column(Dtype::kInt64, false, true, 2);
  struct Line {
    std::string text;
    TextColumn column;
    Code code;
  };
  const std::string deep(100000, '[');
  for (const Line& line :
       std::vector<Line>{{"{\"x\": \"a\\u00e9\\ud83e\\udd9c\\n\"}", text, Code::kNone},
                         {"{\"x\": \"\\ud83e\"}", text, Code::kEscape},
                         {"{\"x\": \"\\udd9c\"}", text, Code::kEscape},
                         {"{\"x\": \"\\q\"}", text, Code::kEscape},
                         {"{\"x\": \"\xff\"}", text, Code::kNotUtf8},
                         {"{\"x\": \"a\tb\"}", text, Code::kNotJson},
                         {"{\"x\": 1}", text, Code::kNotText},
                         {"{\"x\": null}", text, Code::kNull},
                         {"{}", text, Code::kNull},
                         {"[]", text, Code::kNotObject},
                         {"{\"x\": \"a\"", text, Code::kUnclosed},
                         {"{\"x\": \"a", text, Code::kUnclosed},
                         {"{\"x\": \"a\",}", text, Code::kNotJson},
                         {"{\"x\": \"a\"} x", text, Code::kNotJson},
                         {"{\"x\": \"a\", \"x\": \"a\"}", text, Code::kDuplicate},
                         {"{\"x\": \"a\", \"\\u0078\": \"a\"}", text, Code::kDuplicate},
                         {"{\"x\": \"a\", \"y\": 1}", text, Code::kUnknownKey},
                         {"{\"x\": NaN}", real, Code::kNone},
                         {"{\"x\": -Infinity}", real, Code::kNone},
                         {"{\"x\": 01}", real, Code::kNotJson},
                         {"{\"x\": 1.}", real, Code::kNotJson},
                         {"{\"x\": .5}", real, Code::kNotJson},
                         {"{\"x\": 1e5}", real, Code::kNone},
                         {"{\"x\": 9007199254740993}", real, Code::kInexact},
                         {"{\"x\": [[1, 2], [], null]}", list, Code::kNone},
                         {"{\"x\": [1]}", list, Code::kNotList},
                         {"{\"x\": [[[1]]]}", list, Code::kNotNumber},
                         {"{\"x\": [[1.0]]}", list, Code::kNotWhole},
                         {"{\"x\": " + deep, list, Code::kTooDeep}}) {
    const check::Scope scope(std::string_view(line.text).substr(0, 40));
    const Code code = json_code(line.text, line.column);
    // What is too deep within lists may be called something else, but it ends.
    if (line.code != Code::kTooDeep) CHECK_EQ(code, line.code);
    CHECK(line.code == Code::kNone || code != Code::kNone);
  }
  CHECK_EQ(json_code("{\"x\": \"a\", \"y\": {\"z\": [1, {}]}}", text, false), Code::kNone);
  CHECK_EQ(json_code("{\"y\": " + deep, text, false), Code::kTooDeep);
}

TEST(JsonCutAnywhereIsAFault) {
  const std::string line = "{\"x\": \"a\\u00e9\\ud83e\\udd9c\", \"y\": [1.5e-3, {\"z\": null}]}";
  for (size_t size = 1; size < line.size(); ++size) {
    CHECK(json_code(line.substr(0, size), column(Dtype::kBytes), false) != Code::kNone);
  }
}

}  // namespace
}  // namespace recmap
