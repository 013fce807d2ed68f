// One suite for every path this CPU can run.
#include "crc32c.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Bytes = std::vector<uint8_t>;

template <typename Body>
void on_every_path(Body body) {
  for (const CrcPath& path : crc32c_paths()) {
    const check::Scope scope(path.name);
    body(path.extend);
  }
}

Bytes bytes_of(std::string_view text) { return Bytes(text.begin(), text.end()); }

Bytes noise(size_t n) {
  Bytes bytes(n);
  uint32_t state = 0x9e3779b9u;
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

// The definition, a bit at a time, sharing nothing with the code under test.
uint32_t reference(uint32_t crc, uint8_t byte) {
  crc = ~crc;
  for (int bit = 0; bit < 8; ++bit) {
    const bool feedback = ((crc ^ static_cast<uint32_t>(byte >> bit)) & 1) != 0;
    crc = crc >> 1 ^ (feedback ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

// Element n is the checksum of the first n bytes.
std::vector<uint32_t> reference_prefixes(const uint8_t* data, size_t n) {
  std::vector<uint32_t> crcs{0};
  for (size_t i = 0; i < n; ++i) crcs.push_back(reference(crcs.back(), data[i]));
  return crcs;
}

TEST(FourSideBySideAreEachTheChecksumOfTheirOwn) {
  const Bytes bytes = noise(700);
  for (const CrcPath& path : crc32c_paths()) {
    const check::Scope scope(path.name);
    for (size_t n = 0; n < 300; ++n) {
      const uint8_t* const data[4] = {&bytes[0], &bytes[101], &bytes[203], &bytes[307]};
      uint32_t crcs[4];
      path.four(data, n, crcs);
      for (size_t i = 0; i < 4; ++i) CHECK_EQ(crcs[i], reference_prefixes(data[i], n).back());
    }
  }
}

TEST(PathsEndWithThePortableOne) {
  CHECK(!crc32c_paths().empty());
  CHECK_EQ(std::string_view(crc32c_paths().back().name), "portable");
}

TEST(EmptyInputLeavesTheChecksumAsItWas) {
  on_every_path([](CrcExtend extend) {
    CHECK_EQ(extend(0, nullptr, 0), 0u);
    CHECK_EQ(extend(0xe3069283u, nullptr, 0), 0xe3069283u);
  });
}

TEST(CheckValueOfTheNineDigits) {
  const Bytes digits = bytes_of("123456789");
  on_every_path(
      [&](CrcExtend extend) { CHECK_EQ(extend(0, digits.data(), digits.size()), 0xe3069283u); });
}

// RFC 3720, appendix B.4.
TEST(Rfc3720Vectors) {
  const Bytes zeros(32, 0x00);
  const Bytes ones(32, 0xff);
  Bytes ascending(32);
  std::iota(ascending.begin(), ascending.end(), uint8_t{0});
  const Bytes descending(ascending.rbegin(), ascending.rend());
  const std::array<uint8_t, 48> iscsi_read = {
      0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
      0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
  };
  on_every_path([&](CrcExtend extend) {
    CHECK_EQ(extend(0, zeros.data(), zeros.size()), 0x8a9136aau);
    CHECK_EQ(extend(0, ones.data(), ones.size()), 0x62a8ab43u);
    CHECK_EQ(extend(0, ascending.data(), ascending.size()), 0x46dd794eu);
    CHECK_EQ(extend(0, descending.data(), descending.size()), 0x113fdb5cu);
    CHECK_EQ(extend(0, iscsi_read.data(), iscsi_read.size()), 0xd9963a56u);
  });
}

TEST(EveryLengthAtEveryAlignment) {
  constexpr size_t kLongest = 1100;
  constexpr size_t kAlignments = 9;
  const Bytes bytes = noise(kLongest + kAlignments);
  for (size_t offset = 0; offset < kAlignments; ++offset) {
    const uint8_t* const data = bytes.data() + offset;
    const std::vector<uint32_t> expected = reference_prefixes(data, kLongest);
    on_every_path([&](CrcExtend extend) {
      for (size_t n = 0; n <= kLongest; ++n) CHECK_EQ(extend(0, data, n), expected[n]);
    });
  }
}

// The interleaved paths divide their input into three runs of whole 8-byte words.
TEST(LengthsAroundEveryDivisionIntoThreeStreams) {
  constexpr size_t kLongest = 30'000;
  const Bytes bytes = noise(kLongest + 1);
  const std::vector<uint32_t> expected = reference_prefixes(bytes.data(), kLongest + 1);
  on_every_path([&](CrcExtend extend) {
    for (size_t n = 24; n <= kLongest; n += 24) {
      CHECK_EQ(extend(0, bytes.data(), n - 1), expected[n - 1]);
      CHECK_EQ(extend(0, bytes.data(), n), expected[n]);
      CHECK_EQ(extend(0, bytes.data(), n + 1), expected[n + 1]);
    }
  });
}

// Each input fills its own allocation, so that a sanitizer sees any overrun.
TEST(ReadsNothingPastTheEnd) {
  const Bytes bytes = noise(600);
  const std::vector<uint32_t> expected = reference_prefixes(bytes.data(), bytes.size());
  for (size_t n = 0; n <= bytes.size(); ++n) {
    const Bytes exact(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    on_every_path([&](CrcExtend extend) { CHECK_EQ(extend(0, exact.data(), n), expected[n]); });
  }
}

TEST(CopyingSumsAndCopiesTheSameBytesAndNoOthers) {
  const Bytes bytes = noise(1000);
  const std::vector<uint32_t> expected = reference_prefixes(bytes.data(), bytes.size());
  for (const CrcPath& path : crc32c_paths()) {
    const check::Scope scope(path.name);
    for (size_t n = 0; n <= bytes.size(); n += n < 400 ? 1 : 37) {
      for (const size_t shift : {0u, 1u, 8u, 63u}) {
        const Bytes exact(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
        Bytes copy(shift + n);
        CHECK_EQ(path.copy(0, exact.data(), n, copy.data() + shift), expected[n]);
        CHECK(std::equal(exact.begin(), exact.end(),
                         copy.begin() + static_cast<std::ptrdiff_t>(shift)));
      }
    }
    const uint32_t head = path.extend(0, bytes.data(), 300);
    Bytes copy(700);
    CHECK_EQ(path.copy(head, bytes.data() + 300, 700, copy.data()), expected[1000]);
  }
}

TEST(TwoSpansEqualTheWhole) {
  const Bytes bytes = noise(1000);
  const uint32_t whole = reference_prefixes(bytes.data(), bytes.size()).back();
  on_every_path([&](CrcExtend extend) {
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      const uint32_t head = extend(0, bytes.data(), cut);
      CHECK_EQ(extend(head, bytes.data() + cut, bytes.size() - cut), whole);
    }
  });
}

TEST(ManySpansEqualTheWhole) {
  const Bytes bytes = noise(20'011);
  const uint32_t whole = reference_prefixes(bytes.data(), bytes.size()).back();
  on_every_path([&](CrcExtend extend) {
    for (const size_t piece : {1u, 7u, 8u, 143u, 4096u, 6145u}) {
      uint32_t crc = 0;
      for (size_t at = 0; at < bytes.size(); at += piece) {
        crc = extend(crc, bytes.data() + at, std::min(piece, bytes.size() - at));
      }
      CHECK_EQ(crc, whole);
    }
  });
}

TEST(LargeBuffers) {
  constexpr size_t kMebibyte = size_t{1} << 20;
  const Bytes bytes = noise(kMebibyte + 13);
  const std::vector<uint32_t> expected = reference_prefixes(bytes.data(), bytes.size());
  on_every_path([&](CrcExtend extend) {
    for (const size_t odd : {0u, 1u, 5u, 7u, 11u, 13u}) {
      CHECK_EQ(extend(0, bytes.data(), kMebibyte + odd), expected[kMebibyte + odd]);
    }
  });
}

TEST(ABitFlippedAnywhereIsSeen) {
  Bytes bytes = noise(700);
  on_every_path([&](CrcExtend extend) {
    const uint32_t intact = extend(0, bytes.data(), bytes.size());
    for (uint8_t& byte : bytes) {
      byte ^= 0x10;
      CHECK(extend(0, bytes.data(), bytes.size()) != intact);
      byte ^= 0x10;
    }
  });
}

TEST(TheChosenPathAgreesFromAnyThread) {
  const Bytes bytes = noise(5000);
  const uint32_t expected = reference_prefixes(bytes.data(), bytes.size()).back();
  std::array<uint32_t, 4> crcs{};
  std::vector<std::thread> threads;
  for (uint32_t& crc : crcs) {
    threads.emplace_back([&] { crc = crc32c(bytes.data(), bytes.size()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint32_t crc : crcs) CHECK_EQ(crc, expected);
}

TEST(MaskRotatesAndAddsTheDelta) {
  CHECK_EQ(mask_crc(0), 0xa282ead8u);
  CHECK_EQ(mask_crc(0x8000), 0xa282ead9u);
  CHECK_EQ(mask_crc(0xffffffffu), 0xa282ead7u);
  const Bytes digits = bytes_of("123456789");
  CHECK_EQ(masked_crc32c(digits.data(), digits.size()), 0xc78ab0e5u);
}

// The length field of an empty record.
TEST(MaskedChecksumOfEightZeroBytes) {
  const std::array<uint8_t, 8> length{};
  CHECK_EQ(masked_crc32c(length.data(), length.size()), 0x07980329u);
}

}  // namespace
}  // namespace recmap
