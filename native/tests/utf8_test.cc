// Which strings are UTF-8.
#include "utf8.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Offsets = std::vector<int64_t>;
using namespace std::literals;

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

bool sound(std::string_view text) {
  // Alone, and after ASCII of every length up to a word, which is skipped faster.
  const std::string before(9, 'x');
  const bool alone = is_utf8(bytes_of(text));
  for (size_t n = 1; n <= before.size(); ++n) {
    CHECK_EQ(is_utf8(bytes_of(before.substr(0, n) + std::string(text))), alone);
    CHECK_EQ(is_utf8(bytes_of(std::string(text) + before.substr(0, n))), alone);
  }
  return alone;
}

TEST(TextOfAnyLengthIsUtf8) {
  CHECK(sound(""));
  CHECK(sound("plain"));
  CHECK(sound("a\0b"sv));
  CHECK(sound("\xef\xbb\xbf byte order mark"));
  CHECK(sound("\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"));
  CHECK(sound("\xed\x9f\xbf\xee\x80\x80"));  // around the surrogates
}

TEST(OtherBytesAreNot) {
  CHECK(!sound("\x80"));      // a continuation alone
  CHECK(!sound("\xc0\x80"));  // U+0000 in two bytes
  CHECK(!sound("\xc1\xbf"));
  CHECK(!sound("\xe0\x9f\xbf"));          // U+07FF in three
  CHECK(!sound("\xf0\x8f\xbf\xbf"));      // U+FFFF in four
  CHECK(!sound("\xed\xa0\x80"));          // the first surrogate
  CHECK(!sound("\xed\xbf\xbf"));          // the last
  CHECK(!sound("\xf4\x90\x80\x80"));      // U+110000
  CHECK(!sound("\xf8\x88\x80\x80\x80"));  // five bytes
  CHECK(!sound("\xff"));
  CHECK(!sound("\xc3"));  // cut
  CHECK(!sound("\xe2\x82"));
  CHECK(!sound("\xf0\x9f\x98"));
}

TEST(ACharacterMayNotContinueInTheNextRow) {
  const Bytes euro = bytes_of("a\xe2\x82\xac");
  CHECK_EQ(first_invalid_utf8(euro, Offsets{0, 4}), -1);
  CHECK_EQ(first_invalid_utf8(euro, Offsets{0, 0, 1, 4, 4}), -1);
  CHECK_EQ(first_invalid_utf8(euro, Offsets{0, 1, 2, 4}), 1);
  CHECK_EQ(first_invalid_utf8(euro, Offsets{0, 1}), -1);  // bytes after the last row do not count
  CHECK_EQ(first_invalid_utf8(euro, Offsets{0}), -1);
}

TEST(OffsetsThatDoNotFitAreNoted) {
  for (const Offsets& rows : {Offsets{}, Offsets{0, 5}, Offsets{-1, 2}, Offsets{0, 4, 2}}) {
    CHECK_EQ(first_invalid_utf8(bytes_of("abcd"), rows), -2);
  }
}

}  // namespace
}  // namespace recmap
