// Builds records from the inside out, with one small function per message, so that a test can put
// anything anywhere. Messages are buffers of wire bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "format.h"
#include "frame.h"

namespace recmap::wire {

using Buffer = std::vector<uint8_t>;

template <typename... Parts>
Buffer join(const Parts&... parts) {
  Buffer all;
  (all.insert(all.end(), parts.begin(), parts.end()), ...);
  return all;
}

inline Buffer varint(uint64_t value) {
  Buffer bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<uint8_t>(value | 0x80));
  bytes.push_back(static_cast<uint8_t>(value));
  return bytes;
}

inline Buffer tag(uint32_t number, WireType type) {
  return varint(uint64_t{number} << 3 | static_cast<uint8_t>(type));
}

// A length-delimited field of this number.
template <typename Part>
Buffer field(uint32_t number, const Part& bytes) {
  return join(tag(number, WireType::kBytes), varint(bytes.size()), bytes);
}

inline Buffer varints(const std::vector<int64_t>& values) {
  Buffer bytes;
  for (const int64_t value : values) bytes = join(bytes, varint(static_cast<uint64_t>(value)));
  return bytes;
}

// The bytes of numbers as they lie in memory and in packed float lists.
template <typename T>
Buffer raw(const std::vector<T>& values) {
  Buffer bytes(values.size() * sizeof(T));
  size_t at = 0;
  for (const T value : values) store_le(bytes.data() + sizeof(T) * at++, value);
  return bytes;
}

template <typename T>
Buffer raw(std::initializer_list<T> values) {
  return raw(std::vector<T>(values));
}

// A Feature with this list, which is any message.
inline Buffer feature(Kind kind, const Buffer& list) {
  return field(static_cast<uint32_t>(kind), list);
}

inline Buffer ints(const std::vector<int64_t>& values) {
  return feature(Kind::kInt64, values.size() == 0 ? Buffer{} : field(1, varints(values)));
}

inline Buffer floats(const std::vector<float>& values) {
  return feature(Kind::kFloat, values.size() == 0 ? Buffer{} : field(1, raw(values)));
}

inline Buffer strings(std::initializer_list<std::string_view> values) {
  Buffer list;
  for (const std::string_view value : values) list = join(list, field(1, value));
  return feature(Kind::kBytes, list);
}

inline Buffer raw_string(const Buffer& bytes) { return feature(Kind::kBytes, field(1, bytes)); }

// A map entry, as a field of its map. `value` is a Feature or a FeatureList.
inline Buffer entry(std::string_view key, const Buffer& value) {
  return field(1, join(field(1, key), field(2, value)));
}

template <typename... Features>
Buffer feature_list(const Features&... features) {
  return join(field(1, features)...);
}

template <typename... Entries>
Buffer example(const Entries&... entries) {
  return field(1, join(entries...));
}

// The feature lists of a SequenceExample; its context is an example().
template <typename... Entries>
Buffer lists(const Entries&... entries) {
  return field(2, join(entries...));
}

// Records in their frames, end to end.
inline Buffer framed(const std::vector<Buffer>& records) {
  Buffer file;
  for (const Buffer& record : records) {
    const size_t at = file.size();
    file.resize(at + record.size() + kFrameSize);
    write_header(file.data() + at, record.size());
    if (!record.empty()) std::memcpy(file.data() + at + kHeaderSize, record.data(), record.size());
    write_footer(file.data() + file.size() - kFooterSize, record);
  }
  return file;
}

inline std::vector<uint64_t> offsets_of(const std::vector<Buffer>& records) {
  std::vector<uint64_t> offsets;
  uint64_t at = 0;
  for (const Buffer& record : records) {
    offsets.push_back(at);
    at += record.size() + kFrameSize;
  }
  return offsets;
}

}  // namespace recmap::wire
