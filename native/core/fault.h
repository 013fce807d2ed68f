// What is wrong with a record, and where. Only numbers: the caller, who knows the name of the file,
// finds the words.
#pragma once

#include <cstdint>
#include <limits>

namespace recmap {

enum class FaultCode : uint8_t {
  kNone = 0,
  kHeaderCut,      // fewer than 12 bytes are left; found = bytes left
  kLengthCrc,      // expected = CRC computed, found = CRC stored
  kDataCut,        // expected = bytes the record needs, found = bytes left
  kDataCrc,        // expected = CRC computed, found = CRC stored
  kMalformed,      // the data is not a message, or an Example that is damaged within
  kTooLarge,       // over protobuf's 2 GiB; found = size
  kMissing,        // the feature is absent and the field has no fill value
  kWrongKind,      // found = Kind of the feature
  kWrongCount,     // expected and found = number of values
  kWrongSize,      // raw bytes of the wrong size; expected and found = bytes
  kNotOneString,   // raw bytes must be one string; found = number of strings
  kNotMultiple,    // expected = values (or bytes) per item, found = total
  kOutOfRange,     // found = the value that does not fit the dtype
  kFlatNotNested,  // the column is nested, but the feature is not a feature list
  kNotUtf8,        // a string of a text column is not UTF-8
  kChanged,        // the bytes changed while they were read, or since they were indexed
  kNoFeatures,     // another message than an Example; sound, as far as it was read
  kUnknown,        // a feature that no column reads; found = Kind, kNone for a feature list
};

inline constexpr uint32_t kNoColumn = std::numeric_limits<uint32_t>::max();

struct Fault {
  FaultCode code = FaultCode::kNone;
  uint64_t row = 0;     // position among the rows asked for
  uint64_t offset = 0;  // of the record in the file
  uint32_t column = kNoColumn;
  int64_t expected = 0;
  int64_t found = 0;

  explicit operator bool() const { return code != FaultCode::kNone; }
};

}  // namespace recmap
