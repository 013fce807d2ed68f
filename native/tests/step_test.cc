#include "step.h"

#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::entry;
using wire::example;
using wire::floats;
using wire::framed;
using wire::ints;
using wire::offsets_of;
using wire::strings;

Decoded decode_steps(const Buffer& record, const std::vector<Column>& columns,
                     const std::vector<int64_t>& steps, const std::vector<uint8_t>& stepped) {
  const std::vector<Buffer> records = {record};
  const Buffer file = framed(records);
  const std::vector<uint64_t> offsets(steps.size(), offsets_of(records)[0]);
  return decode(file, offsets, columns, {.verify = false, .steps = {steps, stepped}}, [] {});
}

TEST(AStepHasItsPartOfEveryList) {
  const Buffer record =
      example(entry("f", floats({0, 1, 2, 3, 4, 5})), entry("i", ints({7, -1, 1 << 20})),
              entry("s", strings({"a", "", "ccc"})), entry("once", ints({9})));
  const Decoded decoded =
      decode_steps(record,
                   {column_of("f", Dtype::kFloat32, 2), column_of("i", Dtype::kInt32),
                    column_of("s", Dtype::kBytes), column_of("once", Dtype::kInt8)},
                   {2, 0, 1}, {1, 1, 1, 0});
  CHECK(!decoded.fault);
  CHECK((numbers<float>(decoded.columns[0]) == std::vector<float>{4, 5, 0, 1, 2, 3}));
  CHECK((numbers<int32_t>(decoded.columns[1]) == std::vector<int32_t>{1 << 20, 7, -1}));
  CHECK((texts(decoded.columns[2]) == std::vector<std::string>{"ccc", "a", ""}));
  CHECK((numbers<int8_t>(decoded.columns[3]) == std::vector<int8_t>{9, 9, 9}));
}

TEST(AStepBehindTheEndOfAListIsMissing) {
  const Buffer record = example(entry("f", floats({0, 1, 2})), entry("i", ints({7, 8})),
                                entry("s", strings({"a", "b"})));
  const std::vector<Column> columns = {column_of("f", Dtype::kFloat32, 2),
                                       column_of("i", Dtype::kInt64, 3),
                                       column_of("s", Dtype::kBytes)};
  const std::vector<int64_t> beyond = {1, 0, 2};
  for (size_t c = 0; c < columns.size(); ++c) {
    const Decoded decoded = decode_steps(record, {columns[c]}, {beyond[c]}, {1});
    CHECK_EQ(decoded.fault.code, FaultCode::kMissing);
    const Decoded far = decode_steps(record, {columns[c]}, {INT64_MAX}, {1});
    CHECK_EQ(far.fault.code, FaultCode::kMissing);
  }
}

TEST(AStepOfRawBytesIsOneString) {
  const auto text = [](const Buffer& bytes) { return std::string(bytes.begin(), bytes.end()); };
  const Buffer record = example(
      entry("x", strings({text(wire::raw<double>({1, 2})), text(wire::raw<double>({3, 4}))})));
  const Decoded decoded = decode_steps(record, {column_of("x", Dtype::kFloat64, 2)}, {1, 0}, {1});
  CHECK(!decoded.fault);
  CHECK((numbers<double>(decoded.columns[0]) == std::vector<double>{3, 4, 1, 2}));
}

TEST(StepsInAnyOrderAreFound) {
  const Buffer record = example(entry("s", strings({"a", "bb", "ccc", "dddd"})));
  const Decoded decoded =
      decode_steps(record, {column_of("s", Dtype::kBytes)}, {0, 1, 1, 3, 2, 3, 0}, {1});
  CHECK(!decoded.fault);
  CHECK((texts(decoded.columns[0]) ==
         std::vector<std::string>{"a", "bb", "bb", "dddd", "ccc", "dddd", "a"}));
}

TEST(SeveralStringsMayBeOneStep) {
  const Buffer record = example(entry("s", strings({"a", "bb", "ccc", "dddd"})));
  const Decoded decoded = decode_steps(record, {column_of("s", Dtype::kBytes, 2)}, {1}, {1});
  CHECK(!decoded.fault);
  CHECK((texts(decoded.columns[0]) == std::vector<std::string>{"ccc", "dddd"}));
}

TEST(StepsOfUnpackedNumbersAreFound) {
  const Buffer one = wire::join(wire::tag(1, WireType::kVarint), wire::varint(5));
  const Buffer two = wire::join(wire::tag(1, WireType::kVarint), wire::varint(600));
  const Buffer record = example(entry("i", wire::field(3, wire::join(one, two))));
  const Decoded decoded = decode_steps(record, {column_of("i", Dtype::kInt64)}, {1, 0}, {1});
  CHECK(!decoded.fault);
  CHECK((numbers<int64_t>(decoded.columns[0]) == std::vector<int64_t>{600, 5}));
}

TEST(LongListsOfIntegersAreSkippedInGroups) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < 1000; ++i) values.push_back(i * i * (i % 3 == 0 ? -1 : 1));
  const Buffer record = example(entry("i", ints(values)));
  std::vector<int64_t> steps;
  for (int64_t i = 499; i >= 0; --i) steps.push_back(i);
  for (int64_t i = 0; i < 500; i += 1 + i % 7) steps.push_back(i);
  const Decoded decoded = decode_steps(record, {column_of("i", Dtype::kInt64, 2)}, steps, {1});
  CHECK(!decoded.fault);
  const std::vector<int64_t> found = numbers<int64_t>(decoded.columns[0]);
  for (size_t k = 0; k < steps.size(); ++k) {
    CHECK_EQ(found[2 * k], values[2 * static_cast<size_t>(steps[k])]);
    CHECK_EQ(found[2 * k + 1], values[2 * static_cast<size_t>(steps[k]) + 1]);
  }
}

}  // namespace
}  // namespace recmap
