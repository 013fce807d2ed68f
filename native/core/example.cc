#include "example.h"

#include "utf8.h"

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

// What a part of a record tells about the whole: one value makes it an Example, whatever else it
// holds. Without a value, something that no Example has makes it another message.
enum class Sign : uint8_t { kNone, kValue, kForeign };

Sign sign_of_feature(Bytes feature) {
  const bool empty = feature.empty();
  Kind kind;
  if (!find_kind(feature, kind)) return Sign::kForeign;
  return kind != Kind::kNone ? Sign::kValue : empty ? Sign::kNone : Sign::kForeign;
}

// The sign of a message, from those of its fields. visit(tag, bytes) tells that of one; the bytes
// are empty if it is a number.
template <typename Visit>
Sign sign_of_fields(Bytes message, Visit&& visit) {
  Sign sign = Sign::kNone;
  for (Cursor fields(message); !fields.done();) {
    uint32_t tag;
    Bytes bytes;
    if (!fields.tag(tag)) return Sign::kForeign;
    const bool is_bytes = static_cast<WireType>(tag & 7) == WireType::kBytes;
    if (!(is_bytes ? fields.bytes(bytes) : fields.skip(tag))) return Sign::kForeign;
    const Sign found = visit(tag, bytes);
    if (found == Sign::kValue) return found;
    if (found == Sign::kForeign) sign = found;
  }
  return sign;
}

Sign sign_of_steps(Bytes list) {
  return sign_of_fields(list, [](uint32_t tag, Bytes feature) {
    return tag == kTagStep ? sign_of_feature(feature) : Sign::kForeign;
  });
}

// A key that is a map entry itself is what a list of Examples looks like when it is read as one.
// (A name without a value is just a missing feature.)
Sign sign_of_key(Bytes key) {
  return is_utf8(key) && !is_entry(key) ? Sign::kNone : Sign::kForeign;
}

Sign sign_of_entry(Bytes entry, bool in_lists) {
  return sign_of_fields(entry, [&](uint32_t tag, Bytes bytes) {
    if (tag == kTagKey) return sign_of_key(bytes);
    if (tag != kTagValue) return Sign::kForeign;
    return in_lists ? sign_of_steps(bytes) : sign_of_feature(bytes);
  });
}

}  // namespace

bool has_no_features(Bytes record, bool lists) {
  if (!description_of(record).empty()) return false;
  bool maps = false;
  // Every reader skips unknown fields of an Example, and TensorFlow refuses those of its maps.
  const Sign sign = sign_of_fields(record, [&](uint32_t tag, Bytes map) {
    const bool in_lists = lists && tag == kTagFeatureLists;
    if (tag != kTagFeatures && !in_lists) return Sign::kNone;
    maps = true;
    return sign_of_fields(map, [&](uint32_t inner, Bytes entry) {
      return inner == kTagEntry ? sign_of_entry(entry, in_lists) : Sign::kForeign;
    });
  });
  return sign == Sign::kForeign || (!maps && !record.empty());
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
