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

using Chunks = std::vector<Buffer>;

// One call of the walk, with the pieces its cell holds.
struct Seen {
  bool in_lists = false;
  std::string key;
  Form form = Form::kMissing;
  Kind kind = Kind::kNone;
  Chunks chunks;
};

Chunks chunks_of(const Cell& cell) {
  Chunks chunks;
  CHECK(visit_chunks(cell, [&](uint32_t, Bytes chunk) {
    chunks.emplace_back(chunk.begin(), chunk.end());
    return true;
  }));
  return chunks;
}

std::vector<Seen> walk(const Buffer& record, bool with_lists = true) {
  std::vector<Seen> all;
  Scratch scratch;
  CHECK(walk_example(
      record, with_lists, scratch, [&](bool in_lists, Bytes key, const Cell& cell, Bytes) {
        Seen seen{in_lists, std::string(key.begin(), key.end()), cell.form, cell.kind, {}};
        if (cell.form != Form::kSteps) seen.chunks = chunks_of(cell);
        all.push_back(std::move(seen));
      }));
  return all;
}

Seen walk_one(const Buffer& record) {
  const std::vector<Seen> all = walk(record);
  CHECK_EQ(all.size(), 1);
  return all.empty() ? Seen{} : all.back();
}

// How the one Feature of a record lies.
Seen walk_feature(const Buffer& message) { return walk_one(example(entry("k", message))); }

bool is_sound(const Buffer& record) {
  Scratch scratch;
  bool sound = true;
  const bool walked =
      walk_example(record, true, scratch, [&](bool, Bytes, const Cell& cell, Bytes) {
        const auto visit = [](const Cell& step) {
          return visit_chunks(step, [](uint32_t, Bytes) { return true; });
        };
        sound &= cell.form == Form::kSteps ? visit_steps(cell, visit) : visit(cell);
      });
  return walked && sound;
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

TEST(AnEmptyRecordHasNoFeatures) { CHECK(walk({}).empty()); }

TEST(APlainExampleAsTensorFlowWritesIt) {
  const std::vector<Seen> all = walk({
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
  CHECK((all[0].chunks == Chunks{{0x00, 0x00, 0xc0, 0x3f}}));
  CHECK_EQ(all[1].kind, Kind::kInt64);
  CHECK((all[1].chunks == Chunks{{0xac, 0x02}}));
  CHECK_EQ(all[2].form, Form::kFeature);
  CHECK_EQ(all[2].kind, Kind::kBytes);
  CHECK((all[2].chunks == Chunks{{'h', 'i'}, {}}));
}

TEST(AValueMayComeBeforeItsKey) {
  const Seen seen = walk_one(example(field(1, join(field(2, ints({5})), field(1, Buffer{'k'})))));
  CHECK_EQ(seen.key, "k");
  CHECK((seen.chunks == Chunks{{5}}));
}

TEST(AnEntryWithoutAKeyHasTheEmptyKey) {
  CHECK_EQ(walk_one(example(field(1, field(2, ints({5}))))).key, "");
}

TEST(AnEntryWithoutAValueIsMissing) {
  const Seen seen = walk_one(example(field(1, field(1, Buffer{'k'}))));
  CHECK_EQ(seen.key, "k");
  CHECK_EQ(seen.form, Form::kMissing);
  CHECK_EQ(walk_one(lists(field(1, field(1, Buffer{'k'})))).form, Form::kMissing);
}

TEST(AFeatureWithoutAKindIsMissing) {
  CHECK_EQ(walk_feature({}).form, Form::kMissing);
  CHECK_EQ(walk_feature(unknown_fields()).form, Form::kMissing);
}

TEST(AnEmptyListHasItsKind) {
  for (const Kind kind : {Kind::kBytes, Kind::kFloat, Kind::kInt64}) {
    const Seen seen = walk_feature(feature(kind, {}));
    CHECK(seen.form != Form::kMissing);
    CHECK_EQ(seen.kind, kind);
    CHECK(seen.chunks.empty());
  }
}

TEST(EntriesWithEqualKeysComeInOrder) {
  const std::vector<Seen> all = walk(example(entry("k", ints({1})), entry("k", ints({2}))));
  CHECK_EQ(all.size(), 2);
  CHECK((all[0].chunks == Chunks{{1}}));
  CHECK((all[1].chunks == Chunks{{2}}));
}

TEST(ExamplesEndToEndAreMerged) {
  const std::vector<Seen> all =
      walk(join(example(entry("a", ints({1}))), example(), example(entry("b", ints({2})))));
  CHECK_EQ(all.size(), 2);
  CHECK_EQ(all[0].key, "a");
  CHECK_EQ(all[1].key, "b");
}

TEST(UnknownFieldsArePassedOverAtEveryLevel) {
  const Buffer unknown = unknown_fields();
  const auto around = [&](const Buffer& bytes) { return join(unknown, bytes, unknown); };
  const Buffer list = around(field(1, varints({1, 2})));
  const Buffer message = around(feature(Kind::kInt64, list));
  const Buffer pair = around(join(field(1, Buffer{'k'}), unknown, field(2, message)));
  const Buffer record = around(example(around(field(1, pair))));
  const Seen seen = walk_one(record);
  CHECK_EQ(seen.key, "k");
  CHECK_EQ(seen.kind, Kind::kInt64);
  CHECK((seen.chunks == Chunks{{1, 2}}));
}

TEST(UnknownFieldsArePassedOverInFeatureLists) {
  const Buffer unknown = unknown_fields();
  const auto around = [&](const Buffer& bytes) { return join(unknown, bytes, unknown); };
  const Buffer steps = around(field(1, around(ints({5}))));
  const Buffer pair = around(join(field(1, Buffer{'k'}), unknown, field(2, steps)));
  const Buffer record = join(example(), around(lists(around(field(1, pair)))));
  Scratch scratch;
  Chunks chunks;
  CHECK(walk_example(record, true, scratch, [&](bool in_lists, Bytes, const Cell& cell, Bytes) {
    CHECK(in_lists);
    CHECK(visit_steps(cell, [&](const Cell& step) {
      chunks = chunks_of(step);
      return true;
    }));
  }));
  CHECK((chunks == Chunks{{5}}));
}

TEST(KnownNumbersWithOtherWireTypesAreUnknownFields) {
  const Buffer odd = join(tag(1, WireType::kVarint), varint(9), tag(2, WireType::kFixed32),
                          Buffer(4), tag(3, WireType::kFixed64), Buffer(8));
  const Seen seen =
      walk_one(join(odd, example(join(odd, field(1, join(odd, field(2, join(odd, ints({4})))))))));
  CHECK((seen.chunks == Chunks{{4}}));
  // In a list of floats, an unpacked varint is one, and in a list of ints a fixed32.
  CHECK(walk_feature(feature(Kind::kFloat, Buffer{0x08, 0x05})).chunks.empty());
  CHECK(walk_feature(feature(Kind::kInt64, Buffer{0x0d, 0, 0, 0, 0})).chunks.empty());
}

TEST(AOneofKeepsTheKindSetLast) {
  const Seen changed = walk_feature(join(ints({1}), floats({1.0f}), strings({"x"})));
  CHECK_EQ(changed.kind, Kind::kBytes);
  CHECK((changed.chunks == Chunks{{'x'}}));
  // What was set before the change away is lost.
  const Seen back = walk_feature(join(ints({1}), strings({"x"}), ints({2}), ints({3})));
  CHECK_EQ(back.kind, Kind::kInt64);
  CHECK((back.chunks == Chunks{{2}, {3}}));
}

TEST(PackedChunksAndUnpackedValuesOfOneListAreJoined) {
  const Seen mixed =
      walk_feature(feature(Kind::kInt64, join(field(1, varints({1, 300})), Buffer{0x08, 0x80, 0x01},
                                              field(1, Buffer{}), field(1, varints({-1})))));
  CHECK_EQ(mixed.form, Form::kFeature);
  CHECK((mixed.chunks == Chunks{{1, 0xac, 0x02}, {0x80, 0x01}, {}, varints({-1})}));
  const Seen unpacked = walk_feature(feature(Kind::kFloat, Buffer{0x0d, 1, 2, 3, 4}));
  CHECK((unpacked.chunks == Chunks{{1, 2, 3, 4}}));
}

TEST(AListInTwoPiecesIsJoined) {
  const Seen seen = walk_feature(join(ints({1, 2}), ints({}), ints({3})));
  CHECK((seen.chunks == Chunks{{1, 2}, {3}}));
}

TEST(AValueInPiecesIsMerged) {
  const auto with_values = [](const auto&... values) {
    return example(field(1, join(field(1, Buffer{'k'}), field(2, values)...)));
  };
  CHECK((walk_one(with_values(ints({1}), ints({2}))).chunks == Chunks{{1}, {2}}));
  CHECK((walk_one(with_values(ints({1}), strings({"x"}))).chunks == Chunks{{'x'}}));
  CHECK((walk_one(with_values(Buffer{}, ints({1}), Buffer{})).chunks == Chunks{{1}}));
}

TEST(AFeatureListInPiecesIsMerged) {
  const Buffer two = join(field(1, Buffer{'k'}), field(2, feature_list(ints({1}), Buffer{})),
                          field(2, feature_list(ints({2}))));
  Scratch scratch;
  Bytes key;
  Cell cell;
  CHECK(read_entry(two, true, scratch, key, cell));
  CHECK_EQ(cell.form, Form::kSteps);
  std::vector<Chunks> steps;
  CHECK(visit_steps(cell, [&](const Cell& step) {
    steps.push_back(chunks_of(step));
    return true;
  }));
  CHECK((steps == std::vector<Chunks>{{{1}}, {}, {{2}}}));
}

TEST(FeatureListsAreVisitedOnlyWhenAskedFor) {
  const Buffer record = join(example(entry("c", ints({1}))), lists(entry("l", feature_list())));
  const std::vector<Seen> all = walk(record);
  CHECK_EQ(all.size(), 2);
  CHECK(!all[0].in_lists);
  CHECK(all[1].in_lists);
  CHECK_EQ(all[1].form, Form::kSteps);
  CHECK_EQ(walk(record, false).size(), 1);
  CHECK_EQ(walk(field(2, Buffer{0xff}), false).size(), 0);
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

TEST(GroupsNestOnlySoDeep) {
  const auto nested = [](size_t depth) {
    return join(Buffer(depth, 0x3b), Buffer(depth, 0x3c));  // field 7
  };
  CHECK(is_sound(nested(50)));
  CHECK(!is_sound(nested(100'000)));
}

}  // namespace
}  // namespace recmap
