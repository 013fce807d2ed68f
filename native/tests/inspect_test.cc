#include "inspect.h"

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
using wire::feature;
using wire::feature_list;
using wire::field;
using wire::floats;
using wire::framed;
using wire::ints;
using wire::join;
using wire::lists;
using wire::offsets_of;
using wire::strings;

Facts inspect_records(const std::vector<Buffer>& records) {
  return inspect(framed(records), offsets_of(records), true);
}

FeatureFacts facts_of(const std::vector<Buffer>& records, bool in_lists = false) {
  const Facts facts = inspect_records(records);
  CHECK(!facts.not_example);
  const auto found = facts.features.find({in_lists, "x"});
  CHECK(found != facts.features.end());
  return found == facts.features.end() ? FeatureFacts{} : found->second;
}

void check_extent(const Extent& extent, uint64_t min, uint64_t max) {
  CHECK_EQ(extent.min, min);
  CHECK_EQ(extent.max, max);
}

Buffer with_x(const Buffer& message) { return example(entry("x", message)); }
Buffer list_of_x(const Buffer& message) { return field(2, entry("x", message)); }

TEST(NoRecordsAndEmptyRecordsHaveNoFeatures) {
  CHECK_EQ(inspect_records({}).rows, 0);
  const Facts facts = inspect_records({Buffer{}, example()});
  CHECK_EQ(facts.rows, 2);
  CHECK(facts.features.empty());
  CHECK(!facts.not_example);
}

TEST(OtherMessagesAreNotExamples) {
  const Buffer unknown = field(7, Buffer{'a'});
  const std::vector<Buffer> others = {
      unknown,                                              // no map
      field(1, unknown),                                    // another field in the map
      field(1, field(1, Buffer{'h', 'i'})),                 // in the entry
      with_x(field(7, Buffer{})),                           // in the feature
      field(1, field(1, field(1, field(1, Buffer{'a'})))),  // an entry in the place of a key
      field(2, field(1, join(field(1, Buffer{'s'}), field(2, unknown)))),
  };
  for (const Buffer& record : others) {
    const Facts facts = inspect_records({record});
    CHECK(facts.not_example && facts.not_example->code == FaultCode::kNoFeatures);
  }
  const std::vector<Buffer> examples = {
      join(unknown, example()),
      with_x({}),
      join(with_x(ints({1})), unknown),
      join(example(), list_of_x({0x0a, 0x05, 0x1a})),  // field 2 of an Example may hold anything
      join(with_x({}), field(2, Buffer{'h', 'e', 'l', 'l', 'o'})),
  };
  for (const Buffer& record : examples) CHECK(!inspect_records({record}).not_example);
}

TEST(FactsCountRowsAndValues) {
  const FeatureFacts facts =
      facts_of({with_x(ints({1, 300, -1})), with_x(ints({})), Buffer{}, with_x({}),
                with_x(feature(Kind::kInt64, join(field(1, Buffer{1, 2, 3}), Buffer{0x08, 0x05},
                                                  field(1, Buffer{4}))))});
  CHECK_EQ(facts.rows, 3);
  check_extent(facts.values, 0, 5);
  CHECK_EQ(facts.first_row[static_cast<size_t>(Kind::kInt64)], 0);
  CHECK_EQ(facts.first_row[static_cast<size_t>(Kind::kFloat)], UINT64_MAX);
}

TEST(FactsNameTheFirstRowOfEachKind) {
  const FeatureFacts facts =
      facts_of({with_x({}), with_x(floats({1})), with_x(floats({2, 3})), with_x(strings({"a"}))});
  CHECK_EQ(facts.first_row[static_cast<size_t>(Kind::kFloat)], 1);
  CHECK_EQ(facts.first_row[static_cast<size_t>(Kind::kBytes)], 3);
  CHECK_EQ(facts.first_row[static_cast<size_t>(Kind::kInt64)], UINT64_MAX);
  check_extent(facts.values, 1, 2);
}

TEST(FactsOfStringsTellTheirSizes) {
  const FeatureFacts facts = facts_of(
      {with_x(strings({std::string(12, 'a'), std::string(8, 'b')})), with_x(strings({"four"}))});
  check_extent(facts.string_size, 4, 12);
  CHECK_EQ(facts.string_size_bits, 12);
  check_extent(facts.values, 1, 2);
}

TEST(FactsOfFeatureListsCountStepsAndValuesOfSteps) {
  const auto with_steps = [](const auto&... steps) {
    return lists(entry("x", feature_list(steps...)));
  };
  const FeatureFacts facts =
      facts_of({with_steps(ints({1, 2}), ints({3})), with_steps(), with_steps(Buffer{})}, true);
  CHECK_EQ(facts.rows, 3);
  check_extent(facts.steps, 0, 2);
  check_extent(facts.values, 0, 2);
  CHECK_EQ(facts.first_row[static_cast<size_t>(Kind::kInt64)], 0);
}

TEST(FactsKeepTheTwoMapsApart) {
  const Facts facts =
      inspect_records({join(with_x(ints({1})), lists(entry("x", feature_list(floats({1, 2})))))});
  CHECK_EQ(facts.features.size(), 2);
  CHECK(facts.features.contains({false, "x"}));
  CHECK(facts.features.contains({true, "x"}));
}

TEST(FactsOfARepeatedKeyAreThoseOfTheLast) {
  const FeatureFacts facts = facts_of({example(entry("x", floats({1})), entry("x", ints({1, 2})))});
  CHECK_EQ(facts.rows, 1);
  CHECK_EQ(facts.first_row[static_cast<size_t>(Kind::kFloat)], UINT64_MAX);
  check_extent(facts.values, 2, 2);
}

TEST(InspectStopsAtTheFirstRecordThatIsNotAnExample) {
  const std::vector<Buffer> bad = {
      {'h', 'e', 'l', 'l', 'o'},
      {0x0a, 0x05},
      with_x({0x1a, 0x05}),
      with_x(feature(Kind::kFloat, field(1, Buffer(3)))),
      with_x(feature(Kind::kInt64, field(1, Buffer{0x80}))),
      with_x(feature(Kind::kInt64, join(Buffer{0x08}, Buffer(10, 0x80), Buffer{1}))),
      // Nothing but damaged feature lists.
      list_of_x({0x0a, 0x05, 0x1a}),
      list_of_x(field(1, Buffer{0x1a, 0x05})),
      list_of_x(field(1, feature(Kind::kFloat, field(1, Buffer(3))))),
  };
  for (const Buffer& record : bad) {
    const std::vector<Buffer> records = {with_x(ints({1})), record, with_x(ints({1}))};
    const Facts facts = inspect_records(records);
    CHECK_EQ(facts.rows, 1);
    CHECK(facts.not_example.has_value());
    if (!facts.not_example) continue;
    CHECK_EQ(facts.not_example->code, FaultCode::kMalformed);
    CHECK_EQ(facts.not_example->row, 1);
    CHECK_EQ(facts.not_example->offset, offsets_of(records)[1]);
  }
}

TEST(ADamagedFrameIsNamedAsSuch) {
  Buffer file = framed({with_x(ints({1}))});
  file.back() ^= 1;
  const std::vector<uint64_t> offsets = {0};
  const Facts facts = inspect(file, offsets, true);
  CHECK(facts.not_example.has_value());
  CHECK_EQ(facts.not_example->code, FaultCode::kDataCrc);
  CHECK(!inspect(file, offsets, false).not_example);
}

TEST(ARecordWithAKeyThatIsNotUtf8IsNotAnExample) {
  const auto is_key = [](std::string_view key) {
    return !inspect_records({example(entry(key, ints({1})))}).not_example;
  };
  CHECK(is_key(""));
  CHECK(is_key("k\xc3\xa9y"));
  CHECK(is_key("\xe2\x82\xac"));
  CHECK(is_key("\xf0\x9f\x98\x80"));
  CHECK(is_key("\xf4\x8f\xbf\xbf"));
  CHECK(!is_key("\x80"));              // a continuation alone
  CHECK(!is_key("\xc3"));              // cut
  CHECK(!is_key("\xc3("));             // not continued
  CHECK(!is_key("\xc0\x80"));          // longer than necessary
  CHECK(!is_key("\xe0\x9f\xbf"));      // longer than necessary
  CHECK(!is_key("\xed\xa0\x80"));      // a surrogate
  CHECK(!is_key("\xf4\x90\x80\x80"));  // over U+10FFFF
  CHECK(!is_key("\xff"));
}

// Field 2 of an Example is unknown: it need not hold feature lists, even if it looks like them down
// to some level.
TEST(AnythingMayBeInField2OfAnExample) {
  for (const Buffer& odd :
       {field(2, Buffer{0xff, 0xff}), lists(entry("\xff", feature_list())),
        lists(entry("l", Buffer{0xff})), lists(entry("l", feature_list(Buffer{0x1a, 0x05})))}) {
    const Facts facts = inspect_records({join(with_x(ints({1})), odd)});
    CHECK(!facts.not_example);
    CHECK_EQ(facts.rows, 1);
    CHECK(facts.features.contains({false, "x"}));
  }
}

}  // namespace
}  // namespace recmap
