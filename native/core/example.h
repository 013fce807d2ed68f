// Reading tf.train.Example and SequenceExample where they lie, without building
// messages: a record is walked once, and each feature becomes a Cell that
// points into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "wire.h"

namespace recmap {

// Where one feature of one record lies. Points into the record, or into the
// Scratch given to the walk.
struct Cell {
  enum class Form : uint8_t {
    kMissing,  // no such feature, no value, or no kind set
    kPacked,   // `bytes` is the payload itself: one packed list, or one string
    kFeature,  // `bytes` is a Feature message of any shape
    kSteps,    // `bytes` is a FeatureList message
  };
  Bytes bytes;
  Form form = Form::kMissing;
  Kind kind = Kind::kNone;  // of kPacked and kFeature
};

// Owns messages that had to be put together because a record held them in
// pieces.
using Scratch = std::deque<std::vector<uint8_t>>;

// Calls entry(in_lists, key, cell, whole) for every map entry of the record, in
// order; a later entry with the same key in the same map replaces the earlier.
// `whole` is the entry's bytes. Only with `lists` are the feature lists of a
// SequenceExample visited; without it they are passed over unread, as an Example's
// unknown field would be. False if the record is malformed.
template <typename Entry>
bool walk_example(Bytes record, bool lists, Scratch& scratch, Entry&& entry);

// Whether a record that is not empty holds no feature of an Example or SequenceExample:
// other fields only, or map entries that have keys alone, as another message can be read.
// Only for records in which no entry has a value.
bool has_no_features(Bytes record);

// What stands in the description that a record begins with; nothing if it begins otherwise.
Bytes description_of(Bytes record);

// protobuf refuses a string that is not UTF-8, so a record with such a key is no Example.
bool is_utf8(Bytes text);

// Reads the key and value of one map entry.
bool read_entry(Bytes entry, bool in_lists, Scratch& scratch, Bytes& key, Cell& cell);

// Finds how a Feature message lies: kPacked where it is as every writer writes
// it, else kFeature, or kMissing if it has no kind.
bool read_feature(Bytes feature, Cell& cell);

// Calls chunk(tag, bytes) for each piece of the list a cell holds, in order:
// tag kTagPacked with a packed run or a string, or an unpacked tag with the
// value's own bytes. Only for kPacked and kFeature. False if malformed.
template <typename Chunk>
bool visit_chunks(const Cell& cell, Chunk&& chunk);

// Calls step(cell) for each Feature of a kSteps cell. False if malformed.
template <typename Step>
bool visit_steps(const Cell& cell, Step&& step);

// ---------------------------------------------------------------------------

template <typename Entry>
bool walk_example(Bytes record, bool lists, Scratch& scratch, Entry&& entry) {
  Cursor top(record);
  while (!top.done()) {
    uint32_t tag;
    if (!top.tag(tag)) return false;
    const bool in_lists = lists && tag == kTagFeatureLists;
    if (tag != kTagFeatures && !in_lists) {
      if (!top.skip(tag)) return false;
      continue;
    }
    Bytes map;
    if (!top.bytes(map)) return false;
    Cursor entries(map);
    while (!entries.done()) {
      if (!entries.tag(tag)) return false;
      if (tag != kTagEntry) {
        if (!entries.skip(tag)) return false;
        continue;
      }
      Bytes whole;
      Bytes key;
      Cell cell;
      if (!entries.bytes(whole) || !read_entry(whole, in_lists, scratch, key, cell)) return false;
      entry(in_lists, key, cell, whole);
    }
  }
  return true;
}

template <typename Chunk>
bool visit_chunks(const Cell& cell, Chunk&& chunk) {
  if (cell.form == Cell::Form::kPacked) return chunk(kTagPacked, cell.bytes);
  if (cell.form != Cell::Form::kFeature) return cell.form == Cell::Form::kMissing;
  const uint32_t wanted = make_tag(static_cast<uint32_t>(cell.kind), WireType::kBytes);
  Cursor fields(cell.bytes);
  while (!fields.done()) {
    uint32_t field;
    if (!fields.tag(field)) return false;
    if (field != wanted) {
      if (!fields.skip(field)) return false;
      continue;
    }
    Bytes list;
    if (!fields.bytes(list)) return false;
    Cursor values(list);
    while (!values.done()) {
      uint32_t value_tag;
      if (!values.tag(value_tag)) return false;
      const uint8_t* begin = values.position();
      Bytes piece;
      if (value_tag == kTagPacked) {
        if (!values.bytes(piece)) return false;
      } else {
        if (!values.skip(value_tag)) return false;
        const bool ours = (value_tag == kTagUnpackedInt64 && cell.kind == Kind::kInt64) ||
                          (value_tag == kTagUnpackedFloat && cell.kind == Kind::kFloat);
        if (!ours) continue;
        piece = Bytes(begin, values.position());
      }
      if (!chunk(value_tag, piece)) return false;
    }
  }
  return true;
}

template <typename Step>
bool visit_steps(const Cell& cell, Step&& step) {
  Cursor steps(cell.bytes);
  while (!steps.done()) {
    uint32_t tag;
    if (!steps.tag(tag)) return false;
    if (tag != kTagStep) {
      if (!steps.skip(tag)) return false;
      continue;
    }
    Bytes feature;
    Cell inner;
    if (!steps.bytes(feature) || !read_feature(feature, inner)) return false;
    if (!step(inner)) return false;
  }
  return true;
}

}  // namespace recmap
