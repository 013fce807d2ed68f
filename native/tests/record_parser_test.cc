// The parser takes a shortcut for records that repeat the one before; none of these
// tests can tell whether it did.
#include "record_parser.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using Form = Cell::Form;
using Place = Column::Place;
using wire::Buffer;
using wire::entry;
using wire::example;
using wire::feature;
using wire::feature_list;
using wire::field;
using wire::ints;
using wire::join;
using wire::lists;
using wire::strings;

Column named(const char* key, Place place = Place::kAny) {
  Column column;
  column.key = key;
  column.place = place;
  return column;
}

// The payload of each column, if it has a single one.
using Payloads = std::vector<std::optional<Buffer>>;

class Records {
 public:
  explicit Records(std::vector<Column> columns) : columns_(std::move(columns)) {}

  Payloads parse(const Buffer& record) {
    CHECK(parser_.parse(record));
    Payloads payloads;
    for (const Cell& cell : parser_.cells()) {
      payloads.push_back(cell.form == Form::kPacked
                             ? std::optional(Buffer(cell.bytes.begin(), cell.bytes.end()))
                             : std::nullopt);
    }
    return payloads;
  }

  bool refuses(const Buffer& record) { return !parser_.parse(record); }
  const Cell& cell(size_t i) { return parser_.cells()[i]; }

 private:
  std::vector<Column> columns_;
  RecordParser parser_{columns_};
};

Buffer two(std::string_view first, int64_t a, std::string_view second, int64_t b) {
  return example(entry(first, ints({a})), entry(second, ints({b})));
}

TEST(RepeatingRecordsGiveTheirOwnValues) {
  Records records({named("b"), named("a"), named("absent")});
  for (uint8_t i = 0; i < 100; ++i) {
    const Payloads found = records.parse(two("a", i, "b", 127 - i));
    CHECK((found == Payloads{Buffer{static_cast<uint8_t>(127 - i)}, Buffer{i}, std::nullopt}));
  }
}

TEST(RecordsOfEqualLengthButOtherKeysAreParsedAgain) {
  Records records({named("a"), named("b"), named("c")});
  for (int i = 0; i < 10; ++i) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      CHECK((records.parse(two("a", 1, "b", 2)) == Payloads{Buffer{1}, Buffer{2}, std::nullopt}));
    }
    CHECK((records.parse(two("b", 1, "a", 2)) == Payloads{Buffer{2}, Buffer{1}, std::nullopt}));
    CHECK((records.parse(two("c", 1, "b", 2)) == Payloads{std::nullopt, Buffer{2}, Buffer{1}}));
    CHECK((records.parse(two("a", 1, "a", 2)) == Payloads{Buffer{2}, std::nullopt, std::nullopt}));
  }
}

TEST(RecordsOfEqualLengthButOtherKindsAreParsedAgain) {
  Records records({named("a")});
  for (int i = 0; i < 5; ++i) {
    CHECK((records.parse(example(entry("a", ints({1})))) == Payloads{Buffer{1}}));
    CHECK_EQ(records.cell(0).kind, Kind::kInt64);
  }
  CHECK((records.parse(example(entry("a", strings({"x"})))) == Payloads{Buffer{'x'}}));
  CHECK_EQ(records.cell(0).kind, Kind::kBytes);
}

TEST(RecordsOfEqualLengthButOtherPayloadSizesAreParsedAgain) {
  Records records({named("a"), named("b")});
  const Buffer long_first = example(entry("a", ints({1, 2, 3})), entry("b", ints({4})));
  const Buffer long_last = example(entry("a", ints({1})), entry("b", ints({2, 3, 4})));
  CHECK_EQ(long_first.size(), long_last.size());
  for (int i = 0; i < 5; ++i) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      CHECK((records.parse(long_first) == Payloads{Buffer{1, 2, 3}, Buffer{4}}));
    }
    CHECK((records.parse(long_last) == Payloads{Buffer{1}, Buffer{2, 3, 4}}));
  }
}

// A payload is just bytes, even if it looks like fields.
TEST(PayloadsThatLookLikeEntriesStayPayloads) {
  Records records({named("a"), named("b")});
  const Buffer inner = entry("b", ints({9}));
  const Buffer plain(inner.size(), 'x');
  for (int i = 0; i < 5; ++i) {
    for (const Buffer& payload : {plain, inner}) {
      const Payloads found = records.parse(example(entry("a", wire::raw_string(payload))));
      CHECK((found == Payloads{payload, std::nullopt}));
    }
  }
}

TEST(AMalformedRecordOfEqualLengthIsRefused) {
  Records records({named("a"), named("b")});
  const Buffer sound = two("a", 1, "b", 2);
  Buffer broken = sound;
  broken[1] = 0x7f;  // the length of the features
  for (int i = 0; i < 5; ++i) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      CHECK((records.parse(sound) == Payloads{Buffer{1}, Buffer{2}}));
    }
    CHECK(records.refuses(broken));
  }
}

// Faults inside a list are found when its values are read.
TEST(AListOfEqualLengthThatIsNotPlainIsNoPayload) {
  Records records({named("a"), named("b")});
  const Buffer sound = two("a", 1, "b", 2);
  Buffer odd = sound;
  odd[odd.size() - 2] = 0x7f;  // the length of the last payload
  for (int i = 0; i < 5; ++i) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      CHECK((records.parse(sound) == Payloads{Buffer{1}, Buffer{2}}));
    }
    CHECK((records.parse(odd) == Payloads{Buffer{1}, std::nullopt}));
    CHECK_EQ(records.cell(1).form, Form::kFeature);
  }
}

TEST(LengthsThatChangeAndReturn) {
  Records records({named("a")});
  for (int64_t i = 0; i < 50; ++i) {
    const Buffer values = wire::varints({i % 2 == 0 ? 1 : 1000, i});
    const Buffer message = feature(Kind::kInt64, field(1, values));
    CHECK((records.parse(example(entry("a", message))) == Payloads{values}));
    CHECK((records.parse(example(entry("a", message))) == Payloads{values}));
    CHECK((records.parse(example(entry("b", message))) == Payloads{std::nullopt}));
  }
}

TEST(RecordsWithValuesInSeveralPartsBetweenPlainOnes) {
  Records records({named("a"), named("b")});
  const Buffer pieces =
      example(field(1, join(field(1, Buffer{'a'}), field(2, Buffer{}), field(2, ints({5})))),
              entry("b", ints({6})));
  const Buffer plain = example(entry("a", ints({1, 2})), entry("b", ints({3})));
  for (int i = 0; i < 4; ++i) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      CHECK((records.parse(pieces) == Payloads{Buffer{5}, Buffer{6}}));
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      CHECK((records.parse(plain) == Payloads{Buffer{1, 2}, Buffer{3}}));
    }
  }
}

TEST(OfEqualKeysTheLastWins) {
  Records records({named("a")});
  for (int i = 0; i < 5; ++i) {
    CHECK((records.parse(two("a", 1, "a", 2)) == Payloads{Buffer{2}}));
    CHECK((records.parse(example(entry("a", ints({1})), entry("a", Buffer{}))) ==
           Payloads{std::nullopt}));
  }
}

TEST(EmptyRecordsHaveNoCells) {
  Records records({named("a"), named("b")});
  for (int i = 0; i < 5; ++i) CHECK((records.parse({}) == Payloads{std::nullopt, std::nullopt}));
}

TEST(AFeatureTakesPrecedenceOverAFeatureListOfItsName) {
  const Buffer context = example(entry("a", ints({1})));
  const Buffer steps = lists(entry("a", feature_list(ints({2}))));
  for (const Buffer& record : {join(context, steps), join(steps, context)}) {
    Records any({named("a")});
    CHECK((any.parse(record) == Payloads{Buffer{1}}));
    Records in_lists({named("a", Place::kLists)});
    in_lists.parse(record);
    CHECK_EQ(in_lists.cell(0).form, Form::kSteps);
    Records in_features({named("a", Place::kFeatures)});
    CHECK((in_features.parse(record) == Payloads{Buffer{1}}));
  }
}

TEST(AFeatureWithoutAValueGivesWayToAFeatureList) {
  const Buffer context = example(entry("a", Buffer{}));
  const Buffer steps = lists(entry("a", feature_list(ints({2}))));
  for (const Buffer& record : {join(context, steps), join(steps, context), steps}) {
    Records any({named("a")});
    any.parse(record);
    CHECK_EQ(any.cell(0).form, Form::kSteps);
    Records in_features({named("a", Place::kFeatures)});
    in_features.parse(record);
    CHECK_EQ(in_features.cell(0).form, Form::kMissing);
  }
}

TEST(OneKeyInBothMapsServesAColumnForEach) {
  Records records({named("a", Place::kLists), named("a", Place::kFeatures)});
  const Buffer context = example(entry("a", ints({1})));
  const Buffer steps = lists(entry("a", feature_list()));
  for (int i = 0; i < 6; ++i) {
    records.parse(i % 2 == 0 ? join(context, steps) : join(steps, context));
    CHECK_EQ(records.cell(0).form, Form::kSteps);
    CHECK_EQ(records.cell(1).form, Form::kPacked);
  }
}

// Field 2 of an Example is unknown, and need not be feature lists.
TEST(AnythingMayBeInField2UnlessFeatureListsAreWanted) {
  const Buffer record = join(example(entry("a", ints({1}))), field(2, Buffer{0xff, 0xff}));
  for (const Place place : {Place::kAny, Place::kFeatures}) {
    Records records({named("a", place)});
    for (int i = 0; i < 4; ++i) CHECK((records.parse(record) == Payloads{Buffer{1}}));
  }
  Records in_lists({named("a", Place::kLists)});
  CHECK(in_lists.refuses(record));
}

}  // namespace
}  // namespace recmap
