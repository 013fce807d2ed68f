#include "example.h"

#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using Form = Cell::Form;
using wire::Buffer;
using wire::entry;
using wire::example;
using wire::feature;
using wire::feature_list;
using wire::field;
using wire::floats;
using wire::ints;
using wire::join;
using wire::lists;
using wire::strings;
using wire::tag;
using wire::varint;
using wire::varints;

using Fields = std::vector<Buffer>;

// One visited entry, with the fields of the list that its cell holds.
struct Seen {
  bool in_lists = false;
  std::string key;
  Form form = Form::kMissing;
  Kind kind = Kind::kNone;
  Fields fields;
};

Fields fields_of(const Cell& cell) {
  Fields fields;
  CHECK(visit_values(cell, [&](uint32_t, Bytes field) {
    fields.emplace_back(field.begin(), field.end());
    return true;
  }));
  return fields;
}

std::vector<Seen> read_all(const Buffer& record, bool with_lists = true) {
  std::vector<Seen> all;
  Scratch scratch;
  CHECK(visit_entries(record, with_lists, scratch, [&](bool in_lists, Bytes key, const Cell& cell) {
    Seen seen{in_lists, std::string(key.begin(), key.end()), cell.form, cell.kind, {}};
    if (cell.form != Form::kSteps) seen.fields = fields_of(cell);
    all.push_back(std::move(seen));
  }));
  return all;
}

Seen read_one(const Buffer& record) {
  const std::vector<Seen> all = read_all(record);
  CHECK_EQ(all.size(), 1);
  return all.empty() ? Seen{} : all.back();
}

// The one Feature of a record.
Seen read_feature_of(const Buffer& message) { return read_one(example(entry("k", message))); }

bool is_sound(const Buffer& record) {
  Scratch scratch;
  bool sound = true;
  const bool visited = visit_entries(record, true, scratch, [&](bool, Bytes, const Cell& cell) {
    const auto visit = [](const Cell& step) {
      return visit_values(step, [](uint32_t, Bytes) { return true; });
    };
    sound &= cell.form == Form::kSteps ? visit_steps(cell, visit) : visit(cell);
  });
  return visited && sound;
}

// A field of every wire type under numbers that no tf.train message uses.
Buffer unknown_fields() {
  const Buffer scalars =
      join(tag(7, WireType::kVarint), varint(UINT64_MAX), tag(8, WireType::kFixed64), Buffer(8, 1),
           field(9, Buffer{0xff, 0xff}), tag((1u << 29) - 1, WireType::kFixed32), Buffer(4, 1));
  const Buffer inner =
      join(tag(1, WireType::kStartGroup), scalars, tag(1, WireType::kEndGroup), field(1, scalars));
  return join(scalars, tag(10, WireType::kStartGroup), inner, tag(10, WireType::kEndGroup));
}

TEST(AnEmptyRecordHasNoFeatures) { CHECK(read_all({}).empty()); }

TEST(APlainExampleAsTensorFlowWritesIt) {
  const std::vector<Seen> all = read_all({
      0x0a, 0x2b,                                      // features
      0x0a, 0x0d, 0x0a, 0x01, 'f',                     // an entry and its key
      0x12, 0x08, 0x12, 0x06, 0x0a, 0x04,              // value, float_list, packed
      0x00, 0x00, 0xc0, 0x3f,                          //
      0x0a, 0x0b, 0x0a, 0x01, 'i',                     //
      0x12, 0x06, 0x1a, 0x04, 0x0a, 0x02, 0xac, 0x02,  // int64_list
      0x0a, 0x0d, 0x0a, 0x01, 's',                     //
      0x12, 0x08, 0x0a, 0x06, 0x0a, 0x02, 'h',  'i',   // bytes_list
      0x0a, 0x00,                                      // and its second string
  });
  CHECK_EQ(all.size(), 3);
  CHECK_EQ(all[0].key, "f");
  CHECK_EQ(all[0].form, Form::kPacked);
  CHECK_EQ(all[0].kind, Kind::kFloat);
  CHECK((all[0].fields == Fields{{0x00, 0x00, 0xc0, 0x3f}}));
  CHECK_EQ(all[1].kind, Kind::kInt64);
  CHECK((all[1].fields == Fields{{0xac, 0x02}}));
  CHECK_EQ(all[2].form, Form::kFeature);
  CHECK_EQ(all[2].kind, Kind::kBytes);
  CHECK((all[2].fields == Fields{{'h', 'i'}, {}}));
}

TEST(AValueMayComeBeforeItsKey) {
  const Seen seen = read_one(example(field(1, join(field(2, ints({5})), field(1, Buffer{'k'})))));
  CHECK_EQ(seen.key, "k");
  CHECK((seen.fields == Fields{{5}}));
}

TEST(AnEntryWithoutAKeyHasTheEmptyKey) {
  CHECK_EQ(read_one(example(field(1, field(2, ints({5}))))).key, "");
}

TEST(AnEntryWithoutAValueIsMissing) {
  const Seen seen = read_one(example(field(1, field(1, Buffer{'k'}))));
  CHECK_EQ(seen.key, "k");
  CHECK_EQ(seen.form, Form::kMissing);
  CHECK_EQ(read_one(lists(field(1, field(1, Buffer{'k'})))).form, Form::kMissing);
}

TEST(AFeatureWithoutAKindIsMissing) {
  CHECK_EQ(read_feature_of({}).form, Form::kMissing);
  CHECK_EQ(read_feature_of(unknown_fields()).form, Form::kMissing);
}

TEST(AnEmptyListHasItsKind) {
  for (const Kind kind : {Kind::kBytes, Kind::kFloat, Kind::kInt64}) {
    const Seen seen = read_feature_of(feature(kind, {}));
    CHECK(seen.form != Form::kMissing);
    CHECK_EQ(seen.kind, kind);
    CHECK(seen.fields.empty());
  }
}

TEST(EntriesWithEqualKeysComeInOrder) {
  const std::vector<Seen> all = read_all(example(entry("k", ints({1})), entry("k", ints({2}))));
  CHECK_EQ(all.size(), 2);
  CHECK((all[0].fields == Fields{{1}}));
  CHECK((all[1].fields == Fields{{2}}));
}

TEST(ExamplesEndToEndAreMerged) {
  const std::vector<Seen> all =
      read_all(join(example(entry("a", ints({1}))), example(), example(entry("b", ints({2})))));
  CHECK_EQ(all.size(), 2);
  CHECK_EQ(all[0].key, "a");
  CHECK_EQ(all[1].key, "b");
}

TEST(UnknownFieldsAreSkippedAtEveryLevel) {
  const Buffer unknown = unknown_fields();
  const auto around = [&](const Buffer& bytes) { return join(unknown, bytes, unknown); };
  const Buffer list = around(field(1, varints({1, 2})));
  const Buffer message = around(feature(Kind::kInt64, list));
  const Buffer pair = around(join(field(1, Buffer{'k'}), unknown, field(2, message)));
  const Buffer record = around(example(around(field(1, pair))));
  const Seen seen = read_one(record);
  CHECK_EQ(seen.key, "k");
  CHECK_EQ(seen.kind, Kind::kInt64);
  CHECK((seen.fields == Fields{{1, 2}}));
}

TEST(UnknownFieldsAreSkippedInFeatureLists) {
  const Buffer unknown = unknown_fields();
  const auto around = [&](const Buffer& bytes) { return join(unknown, bytes, unknown); };
  const Buffer steps = around(field(1, around(ints({5}))));
  const Buffer pair = around(join(field(1, Buffer{'k'}), unknown, field(2, steps)));
  const Buffer record = join(example(), around(lists(around(field(1, pair)))));
  Scratch scratch;
  Fields fields;
  CHECK(visit_entries(record, true, scratch, [&](bool in_lists, Bytes, const Cell& cell) {
    CHECK(in_lists);
    CHECK(visit_steps(cell, [&](const Cell& step) {
      fields = fields_of(step);
      return true;
    }));
  }));
  CHECK((fields == Fields{{5}}));
}

TEST(KnownNumbersWithOtherWireTypesAreUnknownFields) {
  const Buffer odd = join(tag(1, WireType::kVarint), varint(9), tag(2, WireType::kFixed32),
                          Buffer(4), tag(3, WireType::kFixed64), Buffer(8));
  const Seen seen =
      read_one(join(odd, example(join(odd, field(1, join(odd, field(2, join(odd, ints({4})))))))));
  CHECK((seen.fields == Fields{{4}}));
  // An unpacked varint is unknown in a list of floats, and a fixed32 in a list of ints.
  CHECK(read_feature_of(feature(Kind::kFloat, Buffer{0x08, 0x05})).fields.empty());
  CHECK(read_feature_of(feature(Kind::kInt64, Buffer{0x0d, 0, 0, 0, 0})).fields.empty());
}

TEST(AOneofKeepsTheKindSetLast) {
  const Seen changed = read_feature_of(join(ints({1}), floats({1.0f}), strings({"x"})));
  CHECK_EQ(changed.kind, Kind::kBytes);
  CHECK((changed.fields == Fields{{'x'}}));
  // Values set before the kind changed are lost.
  const Seen back = read_feature_of(join(ints({1}), strings({"x"}), ints({2}), ints({3})));
  CHECK_EQ(back.kind, Kind::kInt64);
  CHECK((back.fields == Fields{{2}, {3}}));
}

TEST(PackedAndUnpackedValuesOfOneListAreJoined) {
  const Seen mixed = read_feature_of(
      feature(Kind::kInt64, join(field(1, varints({1, 300})), Buffer{0x08, 0x80, 0x01},
                                 field(1, Buffer{}), field(1, varints({-1})))));
  CHECK_EQ(mixed.form, Form::kFeature);
  CHECK((mixed.fields == Fields{{1, 0xac, 0x02}, {0x80, 0x01}, {}, varints({-1})}));
  const Seen unpacked = read_feature_of(feature(Kind::kFloat, Buffer{0x0d, 1, 2, 3, 4}));
  CHECK((unpacked.fields == Fields{{1, 2, 3, 4}}));
}

TEST(AListInTwoPartsIsJoined) {
  const Seen seen = read_feature_of(join(ints({1, 2}), ints({}), ints({3})));
  CHECK((seen.fields == Fields{{1, 2}, {3}}));
}

TEST(AValueInSeveralPartsIsMerged) {
  const auto with_values = [](const auto&... values) {
    return example(field(1, join(field(1, Buffer{'k'}), field(2, values)...)));
  };
  CHECK((read_one(with_values(ints({1}), ints({2}))).fields == Fields{{1}, {2}}));
  CHECK((read_one(with_values(ints({1}), strings({"x"}))).fields == Fields{{'x'}}));
  CHECK((read_one(with_values(Buffer{}, ints({1}), Buffer{})).fields == Fields{{1}}));
}

TEST(AFeatureListInSeveralPartsIsMerged) {
  const Buffer two = join(field(1, Buffer{'k'}), field(2, feature_list(ints({1}), Buffer{})),
                          field(2, feature_list(ints({2}))));
  Scratch scratch;
  Bytes key;
  Cell cell;
  CHECK(read_entry(two, true, scratch, key, cell));
  CHECK_EQ(cell.form, Form::kSteps);
  std::vector<Fields> steps;
  CHECK(visit_steps(cell, [&](const Cell& step) {
    steps.push_back(fields_of(step));
    return true;
  }));
  CHECK((steps == std::vector<Fields>{{{1}}, {}, {{2}}}));
}

TEST(FeatureListsAreVisitedOnlyWhenAskedFor) {
  const Buffer record = join(example(entry("c", ints({1}))), lists(entry("l", feature_list())));
  const std::vector<Seen> all = read_all(record);
  CHECK_EQ(all.size(), 2);
  CHECK(!all[0].in_lists);
  CHECK(all[1].in_lists);
  CHECK_EQ(all[1].form, Form::kSteps);
  CHECK_EQ(read_all(record, false).size(), 1);
  CHECK_EQ(read_all(field(2, Buffer{0xff}), false).size(), 0);
}

TEST(MalformedRecordsAreRefused) {
  const Buffer group = tag(7, WireType::kStartGroup);
  CHECK(!is_sound({0x00, 0x00}));                                     // field number 0
  CHECK(!is_sound({0x3e}));                                           // wire type 6
  CHECK(!is_sound({0x3f}));                                           // wire type 7
  CHECK(!is_sound({0x0a}));                                           // no length
  CHECK(!is_sound({0x0a, 0x01}));                                     // no data
  CHECK(!is_sound({0x39, 1, 2, 3, 4, 5, 6, 7}));                      // a cut fixed64
  CHECK(!is_sound({0x3d, 1, 2, 3}));                                  // a cut fixed32
  CHECK(!is_sound({0x38, 0x80}));                                     // a cut varint
  CHECK(!is_sound(join(Buffer{0x38}, Buffer(10, 0x80), Buffer{1})));  // 11 bytes
  CHECK(!is_sound({0xff, 0xff, 0xff, 0xff, 0x7f, 0x00}));             // a tag over 32 bits
  CHECK(!is_sound(group));                                            // never closed
  CHECK(!is_sound(join(group, tag(8, WireType::kEndGroup))));         // closed by another
  CHECK(!is_sound(tag(7, WireType::kEndGroup)));                      // never opened
  CHECK(!is_sound(field(1, Buffer{0x0a, 0x02, 0x0a})));               // an entry over its map's end
  CHECK(!is_sound(example(field(1, Buffer{0x0a, 0x05, 'k'}))));
  CHECK(!is_sound(example(entry("k", Buffer{0x1a, 0x05, 0x0a}))));
  CHECK(!is_sound(example(entry("k", feature(Kind::kInt64, Buffer{0x0a, 0x05, 0x01})))));
  CHECK(!is_sound(lists(entry("k", Buffer{0x0a, 0x05}))));
  CHECK(!is_sound({0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}));
}

TEST(GroupsNestedTooDeepAreRefused) {
  const auto nested = [](size_t depth) {
    return join(Buffer(depth, 0x3b), Buffer(depth, 0x3c));  // field 7
  };
  CHECK(is_sound(nested(50)));
  CHECK(!is_sound(nested(100'000)));
}

}  // namespace
}  // namespace recmap
