// The columns that text files are parsed into, and the numbers in them.
//
// A column is typed before a row is parsed: nothing here guesses. A value that is not of its type
// is a fault, which says where. Without `given`, a type was inferred from other rows, and a number
// has to look like one: 007 and nan are text. All functions are safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "column.h"
#include "format.h"

namespace recmap {

struct TextColumn {
  // The keys that lead to it in an object of JSON. Columns of CSV are numbered.
  std::vector<std::string> path;
  Dtype dtype = Dtype::kBytes;
  bool text = false;   // whether kBytes must be UTF-8
  uint8_t depth = 0;   // lists within lists
  bool given = false;  // whether the user gave the type
  bool nullable = false, null_items = false;
  bool wanted = true;  // whether the values are kept
};

enum class TextFaultCode : uint8_t {
  kNone = 0,
  kFewFields,   // found = fields of the row
  kManyFields,  // more fields than columns
  kQuote,       // a quote within an unquoted field, or text after a quoted one
  kUnclosed,    // a quoted field, string, list or object that does not end
  kNull,        // no value, in a column without nulls
  kNotNumber,   // not a number, or not one as inferred
  kNotWhole,    // a fraction in a column of integers
  kOutOfRange,  // a number that the dtype cannot hold
  kInexact,     // an integer that a float would round
  kNotBool,
  kNotText,  // another value in a column of text
  kNotList,  // another value in a column of lists
  kNotUtf8,
  kNotObject,  // a row, or a value where others have objects, that is not an object
  kNotJson,
  kEscape,      // an escape that stands for no character
  kDuplicate,   // a key that the object has already
  kUnknownKey,  // a key that no column has
  kTooDeep,
};

struct TextFault {
  TextFaultCode code = TextFaultCode::kNone;
  uint64_t row = 0;             // among the rows parsed
  uint64_t row_offset = 0;      // where it begins in the text
  uint64_t begin = 0, end = 0;  // the value
  int64_t column = -1;          // -1 if it is of no column
  int64_t found = 0;

  explicit operator bool() const { return code != TextFaultCode::kNone; }
};

// Bytes that are appended to, and given away in the end.
class GrowingBytes {
 public:
  void append(const void* from, size_t count) {
    if (count > capacity_ - size_) grow(count);
    if (count != 0) std::memcpy(data_.get() + size_, from, count);
    size_ += count;
  }
  template <typename T>
  void push(T value) {
    append(&value, sizeof(T));
  }
  size_t size() const { return size_; }
  const uint8_t* data() const { return data_.get(); }
  void cut(size_t size) { size_ = size; }
  // Leaves nothing behind. The caller frees the memory.
  uint8_t* release() {
    size_ = capacity_ = 0;
    return data_.release();
  }

 private:
  struct Free {
    void operator()(uint8_t* data) const { std::free(data); }
  };

  void grow(size_t count) {
    size_t wanted = capacity_ + capacity_ / 2 + 1024;
    if (wanted < size_ + count) wanted = size_ + count;
    auto* moved = static_cast<uint8_t*>(std::realloc(data_.get(), wanted));
    if (moved == nullptr) throw std::bad_alloc();
    static_cast<void>(data_.release());
    data_.reset(moved);
    capacity_ = wanted;
  }

  std::unique_ptr<uint8_t, Free> data_;
  size_t size_ = 0, capacity_ = 0;
};

// The rows of a column, the items of its lists, or the values within.
struct ValueLevel {
  uint64_t count = 0;
  // Where the items of each list, or the bytes of each string, end.
  GrowingBytes ends;
  // 1 for each that is null; shorter than the count if no more are.
  GrowingBytes nulls;

  void add_null();
};

// The parsed rows of a column.
class TextValues {
 public:
  explicit TextValues(const TextColumn& column);

  // Each adds one value at a level: 0 for a row, the depth for a value that is no list.
  void add_null(size_t level);
  // Ends a list at a level, after its items.
  void end_list(size_t level);
  void add_bool(bool value);
  TextFaultCode add_number(const char* begin, const char* end);
  // nan, inf or -inf.
  TextFaultCode add_special(const char* begin, const char* end);
  TextFaultCode add_string(const uint8_t* begin, size_t size);
  // A string in parts: append to `data`, then end it.
  TextFaultCode end_string();

  const TextColumn& column() const { return *column_; }
  std::vector<ValueLevel>& levels() { return levels_; }
  GrowingBytes& data() { return data_; }

 private:
  template <typename T>
  TextFaultCode add_whole(const char* begin, const char* end);
  template <typename T>
  TextFaultCode add_float(const char* begin, const char* end);

  const TextColumn* column_;
  std::vector<ValueLevel> levels_;
  GrowingBytes data_;
  size_t string_begin_ = 0;
};

// How a field looks, as bits.
enum TextLooks : uint8_t {
  kLooksEmpty = 1,
  kLooksWhole = 2,     // an int64, written as programs write one
  kLooksDecimal = 4,   // with a decimal point
  kLooksExponent = 8,  // with an exponent, but no decimal point
  kLooksOther = 16,
  kLooksQuoted = 32,
  kLooksBare = 64,  // not quoted, and not empty
};
TextLooks looks_of(const char* begin, const char* end);

}  // namespace recmap
