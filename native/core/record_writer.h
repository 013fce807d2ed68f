// Writing a record: tags, lengths and bytes, never past the end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "format.h"

namespace recmap {

inline uint64_t varint_size(uint64_t value) {
  return (static_cast<uint64_t>(std::bit_width(value | 1)) + 6) / 7;
}

// Appends to a buffer. Sizes are measured before, but someone may change the arrays meanwhile, so
// the end is checked all the same. The buffer must outlive the writer, which belongs to one thread.
class RecordWriter {
 public:
  RecordWriter(uint8_t* begin, uint64_t size) : begin_(begin), at_(begin), end_(begin + size) {}

  uint64_t position() const { return static_cast<uint64_t>(at_ - begin_); }
  // Whether all was written, and filled the buffer.
  bool exact() const { return !overrun_ && at_ == end_; }

  void varint(uint64_t value) {
    if (room() < 10 && room() < varint_size(value)) {
      overrun_ = true;
      return;
    }
    for (; value >= 0x80; value >>= 7) *at_++ = static_cast<uint8_t>(value | 0x80);
    *at_++ = static_cast<uint8_t>(value);
  }

  void bytes(const void* bytes, uint64_t size) {
    if (size == 0) return;
    if (room() < size) {
      overrun_ = true;
      return;
    }
    std::memcpy(at_, bytes, size);
    at_ += size;
  }

  // Tag and length of a length-delimited field.
  void field(uint8_t tag, uint64_t size) {
    bytes(&tag, 1);
    varint(size);
  }

  // Fields of padding (format.h) that take `size` bytes, kPaddingOverhead or more, together.
  void padding(uint64_t size) {
    if (room() < size) {
      overrun_ = true;
      return;
    }
    // The length of a field is a varint of three bytes. What is left for the next field is never
    // less than its overhead.
    for (uint64_t left = size; left != 0;) {
      const uint64_t field_bytes = left <= kMaxPadding ? left : kMaxPadding - kPaddingOverhead;
      const uint64_t length = field_bytes - kPaddingOverhead;
      *at_++ = kTagPadding;
      *at_++ = static_cast<uint8_t>(length | 0x80);
      *at_++ = static_cast<uint8_t>(length >> 7 | 0x80);
      *at_++ = static_cast<uint8_t>(length >> 14);
      std::memset(at_, 0, length);
      at_ += length;
      left -= field_bytes;
    }
  }

 private:
  uint64_t room() const { return static_cast<uint64_t>(end_ - at_); }

  uint8_t* begin_;
  uint8_t* at_;
  uint8_t* end_;
  bool overrun_ = false;
};

}  // namespace recmap
