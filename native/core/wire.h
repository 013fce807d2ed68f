// A bounded cursor over protobuf wire format. Every read either succeeds inside the span or
// returns false, and then the message is malformed, by protobuf's own rules. The bytes must outlive
// the cursor, which belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format.h"

namespace recmap {

class Cursor {
 public:
  explicit Cursor(Bytes bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const { return at_ == end_; }
  const uint8_t* position() const { return at_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  bool varint(uint64_t& value) {
    if (at_ != end_ && *at_ < 0x80) {
      value = *at_++;
      return true;
    }
    return long_varint(value);
  }

  // A tag: field number and wire type. Field number 0 is malformed.
  bool tag(uint32_t& value) {
    uint64_t wide;
    if (!varint(wide) || wide > UINT32_MAX || wide >> 3 == 0) return false;
    value = static_cast<uint32_t>(wide);
    return true;
  }

  // The bytes of a length-delimited field whose tag has been read.
  bool bytes(Bytes& value) {
    uint64_t size;
    if (!varint(size) || size > left()) return false;
    value = Bytes(at_, static_cast<size_t>(size));
    at_ += size;
    return true;
  }

  bool fixed32(uint32_t& value) {
    if (left() < 4) return false;
    value = load_le<uint32_t>(at_);
    at_ += 4;
    return true;
  }

  // Skips the value of an unknown field, groups included.
  bool skip(uint32_t tag, int depth = 0);

 private:
  bool long_varint(uint64_t& value) {
    uint64_t result = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == end_) return false;
      const uint8_t byte = *at_++;
      result |= static_cast<uint64_t>(byte & 0x7f) << (shift < 64 ? shift : 63);
      if (byte < 0x80) {
        value = result;
        return true;
      }
    }
    return false;
  }

  const uint8_t* at_;
  const uint8_t* end_;
};

inline bool Cursor::skip(uint32_t tag, int depth) {
  constexpr int kMaxDepth = 100;  // protobuf's own limit on nesting
  uint64_t number;
  Bytes ignored;
  switch (static_cast<WireType>(tag & 7)) {
    case WireType::kVarint:
      return varint(number);
    case WireType::kFixed64:
      if (left() < 8) return false;
      at_ += 8;
      return true;
    case WireType::kBytes:
      return bytes(ignored);
    case WireType::kFixed32:
      if (left() < 4) return false;
      at_ += 4;
      return true;
    case WireType::kStartGroup: {
      if (depth >= kMaxDepth) return false;
      const uint32_t closing = (tag & ~uint32_t{7}) | static_cast<uint32_t>(WireType::kEndGroup);
      for (uint32_t inner; this->tag(inner);) {
        if (inner == closing) return true;
        if (!skip(inner, depth + 1)) return false;
      }
      return false;
    }
    case WireType::kEndGroup:
      break;
  }
  return false;
}

}  // namespace recmap
