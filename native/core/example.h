// Reading tf.train.Example and SequenceExample in place, without building messages: a record is
// visited once, and each feature becomes a Cell that points into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "fault.h"
#include "wire.h"

namespace recmap {

// Where one feature of one record lies. Points into the record, or into the Scratch given to the
// visit.
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

// Owns messages that were put together because a record held them in several parts.
using Scratch = std::deque<std::vector<uint8_t>>;

// Calls visit(in_lists, key, cell) for every map entry of the record, in order; a later entry with
// the same key in the same map replaces an earlier one. The feature lists of a SequenceExample
// are visited only with `lists`, and skipped unread otherwise, like an unknown field of an
// Example. False if the record is malformed.
template <typename Visit>
bool visit_entries(Bytes record, bool lists, Scratch& scratch, Visit&& visit);

// What is wrong with a record as a whole, if anything. Nothing, if it holds a value, is empty, or
// only names features. Otherwise:
// - kNoFeatures if it is another message: it has no map of features, or one with something that
//   such a map does not hold: an undefined field, a key that is not text, or an Example in the
//   place of a key;
// - kMalformed if all that it holds are feature lists, and they are damaged.
// With `lists`, visit_entries() has found the record to be sound; without, only the rest of it,
// because field 2 does not hold feature lists that can be read.
FaultCode shape_fault(Bytes record, bool lists);

// The content of the description that a record begins with; empty if it begins otherwise.
Bytes description_of(Bytes record);

// Reads the key and value of one map entry.
bool read_entry(Bytes entry, bool in_lists, Scratch& scratch, Bytes& key, Cell& cell);

// Finds the form of a Feature message: kPacked if it is laid out the way every writer does it,
// otherwise kFeature, or kMissing if it has no kind.
bool read_feature(Bytes feature, Cell& cell);

// Calls visit(tag, bytes) for each field of the list that a cell holds, in order: kTagPacked with
// packed numbers or a string, or an unpacked tag with the bytes of one value. Only for kPacked and
// kFeature. False if the list is malformed or visit() returns false.
template <typename Visit>
bool visit_values(const Cell& cell, Visit&& visit);

// Calls visit(cell) for each Feature of a kSteps cell. False if it is malformed or visit()
// returns false.
template <typename Visit>
bool visit_steps(const Cell& cell, Visit&& visit);

// ---------------------------------------------------------------------------

template <typename Visit>
bool visit_entries(Bytes record, bool lists, Scratch& scratch, Visit&& visit) {
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
      Bytes entry;
      Bytes key;
      Cell cell;
      if (!entries.bytes(entry) || !read_entry(entry, in_lists, scratch, key, cell)) return false;
      visit(in_lists, key, cell);
    }
  }
  return true;
}

template <typename Visit>
bool visit_values(const Cell& cell, Visit&& visit) {
  if (cell.form == Cell::Form::kPacked) return visit(kTagPacked, cell.bytes);
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
      Bytes bytes;
      if (value_tag == kTagPacked) {
        if (!values.bytes(bytes)) return false;
      } else {
        if (!values.skip(value_tag)) return false;
        const bool ours = (value_tag == kTagUnpackedInt64 && cell.kind == Kind::kInt64) ||
                          (value_tag == kTagUnpackedFloat && cell.kind == Kind::kFloat);
        if (!ours) continue;
        bytes = Bytes(begin, values.position());
      }
      if (!visit(value_tag, bytes)) return false;
    }
  }
  return true;
}

template <typename Visit>
bool visit_steps(const Cell& cell, Visit&& visit) {
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
    if (!visit(inner)) return false;
  }
  return true;
}

}  // namespace recmap
