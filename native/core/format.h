// The constants of the TFRecord framing and of the tf.train.Example wire
// format, shared by reader and writer. docs/format.md describes them in prose.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace recmap {

using Bytes = std::span<const uint8_t>;

static_assert(std::endian::native == std::endian::little,
              "records are little-endian and are read in place");

// A record: u64 length | u32 masked CRC of the length | data | u32 masked CRC
// of the data.
inline constexpr size_t kHeaderSize = 12;
inline constexpr size_t kFooterSize = 4;
inline constexpr size_t kFrameSize = kHeaderSize + kFooterSize;

// protobuf refuses messages of 2 GiB and more, so no Example can be larger.
inline constexpr uint64_t kMaxMessageSize = (uint64_t{1} << 31) - 1;

inline constexpr uint32_t kCrcMaskDelta = 0xa282ead8u;

constexpr uint32_t mask_crc(uint32_t crc) { return std::rotr(crc, 15) + kCrcMaskDelta; }

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5
};

constexpr uint8_t make_tag(uint32_t field, WireType type) {
  return static_cast<uint8_t>(field << 3 | static_cast<uint8_t>(type));
}

// Example.features and SequenceExample.context share a number, so one parser
// reads both messages.
inline constexpr uint8_t kTagFeatures = make_tag(1, WireType::kBytes);
inline constexpr uint8_t kTagFeatureLists = make_tag(2, WireType::kBytes);
// Features.feature and FeatureLists.feature_list are maps: repeated entries of
// key = 1, value = 2.
inline constexpr uint8_t kTagEntry = make_tag(1, WireType::kBytes);
inline constexpr uint8_t kTagKey = make_tag(1, WireType::kBytes);
inline constexpr uint8_t kTagValue = make_tag(2, WireType::kBytes);
// FeatureList.feature.
inline constexpr uint8_t kTagStep = make_tag(1, WireType::kBytes);
// BytesList.value, and FloatList.value and Int64List.value when packed.
inline constexpr uint8_t kTagPacked = make_tag(1, WireType::kBytes);
inline constexpr uint8_t kTagUnpackedInt64 = make_tag(1, WireType::kVarint);
inline constexpr uint8_t kTagUnpackedFloat = make_tag(1, WireType::kFixed32);

// The oneof of Feature; the numbers are the field numbers.
enum class Kind : uint8_t { kNone = 0, kBytes = 1, kFloat = 2, kInt64 = 3 };

// The padding of the aligned layout: a field that no tf.train message defines, so every protobuf
// reader skips it. Its length is always written in three bytes.
inline constexpr uint8_t kTagPadding = make_tag(15, WireType::kBytes);
inline constexpr size_t kPaddingOverhead = 4;
inline constexpr size_t kMaxPadding = kPaddingOverhead + (size_t{1} << 21) - 1;

// The description of the columns, in the first record of a file before its features: another field
// that no tf.train message defines.
inline constexpr uint8_t kTagDescription = make_tag(14, WireType::kBytes);
inline constexpr std::string_view kDescriptionMagic = "RECMAPSC";

template <typename T>
T load_le(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
void store_le(uint8_t* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

}  // namespace recmap
