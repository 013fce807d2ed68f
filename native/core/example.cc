#include "example.h"

#include <algorithm>

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

// What a part of a record tells about the whole, the weakest sign first: one value makes it an
// Example, whatever else it holds. Without a value, something that no Example has makes it another
// message, and values that cannot be read make it a damaged Example.
enum class Sign : uint8_t { kNone, kDamaged, kForeign, kValue };

Sign sign_of_feature(Bytes feature) {
  const bool empty = feature.empty();
  Kind kind;
  if (!find_kind(feature, kind)) return Sign::kDamaged;
  return kind != Kind::kNone ? Sign::kValue : empty ? Sign::kNone : Sign::kForeign;
}

// The strongest sign of a message's fields, or `malformed` if they cannot all be read and none is
// stronger. visit(tag, bytes) tells the sign of one; the bytes are empty if it is a number.
template <typename Visit>
Sign sign_of_fields(Bytes message, Sign malformed, Visit&& visit) {
  Sign sign = Sign::kNone;
  for (Cursor fields(message); !fields.done() && sign != Sign::kValue;) {
    uint32_t tag;
    Bytes bytes;
    if (!fields.tag(tag)) return std::max(sign, malformed);
    const bool is_bytes = static_cast<WireType>(tag & 7) == WireType::kBytes;
    if (!(is_bytes ? fields.bytes(bytes) : fields.skip(tag))) return std::max(sign, malformed);
    sign = std::max(sign, visit(tag, bytes));
  }
  return sign;
}

Sign sign_of_steps(Bytes list) {
  return sign_of_fields(list, Sign::kDamaged, [](uint32_t tag, Bytes feature) {
    return tag == kTagStep ? sign_of_feature(feature) : Sign::kForeign;
  });
}

// A key that is a map entry itself is what a list of Examples looks like when it is read as one.
// (A name without a value is just a missing feature.)
Sign sign_of_key(Bytes key) {
  return is_utf8(key) && !is_entry(key) ? Sign::kNone : Sign::kForeign;
}

Sign sign_of_entry(Bytes entry, bool in_lists) {
  return sign_of_fields(entry, Sign::kForeign, [&](uint32_t tag, Bytes bytes) {
    if (tag == kTagKey) return sign_of_key(bytes);
    if (tag != kTagValue) return Sign::kForeign;
    return in_lists ? sign_of_steps(bytes) : sign_of_feature(bytes);
  });
}

// TensorFlow refuses unknown fields of a map.
Sign sign_of_map(Bytes map, bool in_lists) {
  return sign_of_fields(map, Sign::kForeign, [&](uint32_t tag, Bytes entry) {
    return tag == kTagEntry ? sign_of_entry(entry, in_lists) : Sign::kForeign;
  });
}

}  // namespace

FaultCode shape_fault(Bytes record, bool lists) {
  if (record.empty() || !description_of(record).empty()) return FaultCode::kNone;
  bool has_features = false;
  bool has_lists = false;
  Sign in_lists = Sign::kNone;
  const Sign in_features = sign_of_fields(record, Sign::kForeign, [&](uint32_t tag, Bytes map) {
    if (tag == kTagFeatures) {
      has_features = true;
      return sign_of_map(map, false);
    }
    if (tag != kTagFeatureLists) return Sign::kNone;  // Every reader skips unknown fields.
    has_lists = true;
    in_lists = std::max(in_lists, sign_of_map(map, true));
    return lists && in_lists == Sign::kValue ? Sign::kValue : Sign::kNone;
  });
  // Beside features, field 2 may hold anything that is not read.
  if (has_features && (!lists || in_lists == Sign::kDamaged)) in_lists = Sign::kNone;
  switch (std::max(in_features, in_lists)) {
    case Sign::kForeign:
      return FaultCode::kNoFeatures;
    case Sign::kDamaged:
      return FaultCode::kMalformed;
    case Sign::kValue:
      return lists || has_features ? FaultCode::kNone : FaultCode::kMalformed;
    default:
      return has_features || has_lists ? FaultCode::kNone : FaultCode::kNoFeatures;
  }
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
