#include "example.h"

namespace recmap {
namespace {

Kind kind_of(uint32_t tag) {
  switch (tag) {
    case make_tag(1, WireType::kBytes):
      return Kind::kBytes;
    case make_tag(2, WireType::kBytes):
      return Kind::kFloat;
    case make_tag(3, WireType::kBytes):
      return Kind::kInt64;
    default:
      return Kind::kNone;
  }
}

// Whether a list is laid out the way every writer does it: one run of packed numbers, or one
// string, that fills it.
bool is_plain(Bytes list, Bytes& payload) {
  Cursor values(list);
  uint32_t tag;
  return values.tag(tag) && tag == kTagPacked && values.bytes(payload) && values.done();
}

// A oneof keeps the kind that was set last, and loses what was set before the kind changed. Trims
// `feature` to what counts.
bool find_kind(Bytes& feature, Kind& kind) {
  kind = Kind::kNone;
  Cursor fields(feature);
  const uint8_t* counts_from = feature.data();
  while (!fields.done()) {
    const uint8_t* begin = fields.position();
    uint32_t tag;
    if (!fields.tag(tag) || !fields.skip(tag)) return false;
    const Kind next = kind_of(tag);
    if (next == Kind::kNone) continue;
    if (next != kind) counts_from = begin;
    kind = next;
  }
  feature = Bytes(counts_from, feature.data() + feature.size());
  return true;
}

// Whether bytes are a message that begins with its field 1, like a map entry.
bool is_entry(Bytes bytes) {
  uint32_t tag = 0;
  Cursor cursor(bytes);
  if (!cursor.tag(tag) || tag != kTagKey || !cursor.skip(tag)) return false;
  while (!cursor.done()) {
    if (!cursor.tag(tag) || !cursor.skip(tag)) return false;
  }
  return true;
}

// Whether a map has entries, all of them without values, whose keys are map entries themselves:
// this is what a list of Examples looks like when it is read as one. (A name without a value is
// just a missing feature.) Also false if the map is malformed; then `sound` is false too.
bool has_keys_only(Bytes map, bool& sound) {
  size_t entries = 0;
  Cursor cursor(map);
  uint32_t tag;
  while (!cursor.done()) {
    Bytes entry;
    if (!cursor.tag(tag)) return sound = false;
    if (tag != kTagEntry) {
      if (!cursor.skip(tag)) return sound = false;
      continue;
    }
    if (!cursor.bytes(entry)) return sound = false;
    ++entries;
    bool nested = false;
    for (Cursor fields(entry); !fields.done();) {
      Bytes key;
      if (!fields.tag(tag)) return sound = false;
      if (tag == kTagValue) return false;
      if (tag == kTagKey) {
        if (!fields.bytes(key)) return sound = false;
        nested = is_entry(key);
      } else if (!fields.skip(tag)) {
        return sound = false;
      }
    }
    if (!nested) return false;
  }
  return entries != 0;
}

}  // namespace

bool has_no_features(Bytes record) {
  bool maps = false;
  bool keys_only = true;
  Cursor top(record);
  while (!top.done()) {
    uint32_t tag;
    Bytes map;
    if (!top.tag(tag)) return false;
    if (tag != kTagFeatures && tag != kTagFeatureLists) {
      if (!top.skip(tag)) return false;
      continue;
    }
    if (!top.bytes(map)) return false;
    bool sound = true;
    const bool odd = has_keys_only(map, sound);
    // Field 2 is unknown in a plain Example and may hold anything.
    if (!sound && tag == kTagFeatureLists) continue;
    maps = true;
    keys_only = keys_only && odd;
  }
  return !maps || keys_only;
}

Bytes description_of(Bytes record) {
  if (record.empty() || record[0] != kTagDescription) return {};
  Cursor cursor(record);
  uint32_t tag;
  Bytes content;
  if (!cursor.tag(tag) || !cursor.bytes(content)) return {};
  const bool ours =
      content.size() >= kDescriptionMagic.size() &&
      std::memcmp(content.data(), kDescriptionMagic.data(), kDescriptionMagic.size()) == 0;
  return ours ? content : Bytes{};
}

bool read_feature(Bytes feature, Cell& cell) {
  cell = Cell{};
  if (feature.empty()) return true;
  Cursor fields(feature);
  uint32_t tag;
  Bytes list;
  if (!fields.tag(tag)) return false;
  const Kind kind = kind_of(tag);
  if (kind != Kind::kNone && fields.bytes(list) && fields.done()) {
    Bytes payload;
    if (is_plain(list, payload)) {
      cell = Cell{payload, Cell::Form::kPacked, kind};
      return true;
    }
    cell = Cell{feature, Cell::Form::kFeature, kind};
    return true;
  }
  if (!find_kind(feature, cell.kind)) return false;
  if (cell.kind == Kind::kNone) return true;
  cell.bytes = feature;
  cell.form = Cell::Form::kFeature;
  return true;
}

bool read_entry(Bytes entry, bool in_lists, Scratch& scratch, Bytes& key, Cell& cell) {
  Cursor fields(entry);
  key = Bytes{};
  Bytes value;
  bool has_value = false;
  std::vector<uint8_t>* joined = nullptr;
  while (!fields.done()) {
    uint32_t tag;
    if (!fields.tag(tag)) return false;
    if (tag == kTagKey) {
      if (!fields.bytes(key)) return false;
    } else if (tag == kTagValue) {
      Bytes more;
      if (!fields.bytes(more)) return false;
      if (has_value) {
        // Messages that occur twice are merged, which is the same as parsing their bytes end to
        // end.
        if (joined == nullptr) joined = &scratch.emplace_back(value.begin(), value.end());
        joined->insert(joined->end(), more.begin(), more.end());
        value = *joined;
      } else {
        value = more;
        has_value = true;
      }
    } else if (!fields.skip(tag)) {
      return false;
    }
  }
  if (!in_lists) return read_feature(value, cell);
  cell = Cell{value, has_value ? Cell::Form::kSteps : Cell::Form::kMissing, Kind::kNone};
  return true;
}

}  // namespace recmap
