#include "gzip_members.h"

#include <cstdint>
#include <vector>

#include "check.h"
#include "chunk_builder.h"

namespace recmap {
namespace {

using namespace stored;
using Ends = std::vector<MemberEnd>;

// A member that states its size as `IG` or `BC` does, after other parts of the extra field.
Buffer member(const Buffer& plain, const char* name = "IG", const Buffer& before = {},
              size_t more = 0) {
  const int width = name[0] == 'I' ? 4 : 2;
  const size_t extra = before.size() + 4 + static_cast<size_t>(width);
  const auto all = [&](size_t size) {
    return gzip(
        plain, 4,
        join(little(extra, 2), before,
             Buffer{static_cast<uint8_t>(name[0]), static_cast<uint8_t>(name[1])},
             little(static_cast<uint64_t>(width), 2), little(size - (width == 2 ? 1 : 0), width)));
  };
  return all(all(1).size() + more);
}

std::optional<size_t> size_of(const Buffer& head) {
  const Buffer exact(head.begin(), head.end());
  return member_size(exact);
}

Ends found(const Buffer& stored, size_t most = SIZE_MAX) {
  const Buffer exact(stored.begin(), stored.end());
  return find_members(exact, most);
}

TEST(MembersStateTheirSizeInTheirHeader) {
  for (const char* name : {"IG", "BC"}) {
    for (const Buffer& before : {Buffer{}, Buffer{'x', 'y', 3, 0, 1, 2, 3}}) {
      const Buffer whole = member(noise(100), name, before);
      CHECK(size_of(whole) == whole.size());
      const size_t head = 12 + before.size() + (name[0] == 'I' ? 8 : 6);
      CHECK(size_of(part(whole, 0, head)) == whole.size());
      for (size_t left = 0; left < head; ++left) CHECK(!size_of(part(whole, 0, left)));
    }
  }
}

TEST(SizesThatNoMemberHasAreNotStated) {
  const auto stating = [](const Buffer& extra, const char* magic = "\x1f\x8b\x08\x04") {
    Buffer head = {0, 0, 0, 0, 0, 0, 0, 0, 0, 255};
    for (size_t i = 0; i < 4; ++i) head[i] = static_cast<uint8_t>(magic[i]);
    return join(head, little(extra.size(), 2), extra, Buffer(20));
  };
  const auto ig = [](uint64_t size) { return join(Buffer{'I', 'G', 4, 0}, little(size, 4)); };
  CHECK(size_of(stating(ig(29))) == 29);
  CHECK(!size_of(stating(ig(28))));  // a header and a trailer without anything between
  CHECK(!size_of(stating(ig(0))));
  CHECK(size_of(stating(ig(kMostMember))) == kMostMember);
  CHECK(!size_of(stating(ig(kMostMember + 1))));
  CHECK(!size_of(stating(ig(0xffffffff))));
  CHECK(!size_of(stating({'I', 'G', 2, 0, 50, 0})));
  CHECK(!size_of(stating({'B', 'C', 4, 0, 50, 0, 0, 0})));
  CHECK(!size_of(stating({'I', 'G', 4, 0, 50, 0, 0})));
  CHECK(!size_of(stating({'x', 'y', 255, 255, 50, 0, 0, 0})));
  CHECK(!size_of(stating({})));
  CHECK(!size_of(stating(ig(29), "\x1f\x8b\x08\x03")));
  CHECK(!size_of(stating(ig(29), "\x1f\x8b\x09\x04")));
}

TEST(MembersAreFoundAsLongAsTheyAreWhole) {
  const Buffer first = member(noise(100)), second = member(noise(50), "BC"), empty = member({});
  const Buffer all = join(first, second, empty);
  for (size_t left = 0; left <= all.size(); ++left) {
    const Ends ends = found(part(all, 0, left));
    const size_t expected = left < first.size()                   ? 0
                            : left < first.size() + second.size() ? 1
                            : left < all.size()                   ? 2
                                                                  : 3;
    CHECK_EQ(ends.size(), expected);
  }
  const Ends ends = found(join(all, Buffer(100)));
  CHECK_EQ(ends.size(), 3);
  CHECK_EQ(ends[1].stored, first.size() + second.size());
  CHECK_EQ(ends[2].plain, 150);
  CHECK_EQ(found(join(first, gzip(noise(10)), second)).size(), 1);
}

TEST(PlainSizesThatAreClaimedAreBounded) {
  const Buffer whole = member(noise(100));
  CHECK_EQ(found(join(whole, whole), 200).size(), 2);
  CHECK_EQ(found(join(whole, whole), 199).size(), 1);
  CHECK_EQ(found(whole, 99).size(), 0);
  for (const uint64_t claimed : {uint64_t{kMostMember + 1}, uint64_t{0xffffffff}}) {
    CHECK_EQ(found(join(part(whole, 0, whole.size() - 4), little(claimed, 4))).size(), 0);
  }
  // More than so few bytes can make.
  const uint64_t too_many = 1033 * whole.size();
  CHECK_EQ(found(join(part(whole, 0, whole.size() - 4), little(too_many, 4))).size(), 0);
}

TEST(MembersAreInflatedUpToTheFirstDamagedOne) {
  CHECK(use_isal());
  constexpr unsigned kCount = 60;
  Buffer all, plain;
  for (unsigned i = 0; i < kCount; ++i) {
    all = join(all, member(noise(i * 7 % 90, i), i % 3 == 0 ? "BC" : "IG"));
    plain = join(plain, noise(i * 7 % 90, i));
  }
  const Ends ends = found(all);
  CHECK_EQ(ends.size(), kCount);
  for (const size_t threads : {1, 2, 5}) {
    Buffer out(plain.size());
    CHECK_EQ(inflate_members(all, ends, out, threads), kCount);
    CHECK(out == plain);
    for (const size_t bad : {0, 1, 30, 59}) {
      Buffer changed = all;
      changed[ends[bad].stored - 5] ^= 1;  // the checksum
      if (bad < 50) changed[ends[bad + 7].stored - 5] ^= 1;
      CHECK_EQ(inflate_members(changed, ends, out, threads), bad);
      const size_t sound = bad == 0 ? 0 : ends[bad - 1].plain;
      CHECK(part(out, 0, sound) == part(plain, 0, sound));
    }
  }
  CHECK_EQ(inflate_members(all, {}, {}, 4), 0);
}

TEST(AnyBytesAndAnyEndsAreSafeToInflate) {
  CHECK(use_isal());
  std::mt19937 draw(3);
  const Buffer all = join(member(noise(100)), member(noise(50)), member(noise(10), "BC"));
  const Ends sound = found(all);
  for (int i = 0; i < 3000; ++i) {
    Buffer changed(all.begin(), all.end());
    Ends ends = sound;
    if (i % 2 == 0) {
      changed[draw() % changed.size()] = static_cast<uint8_t>(draw());
      ends = find_members(changed, 1000);
    } else {
      MemberEnd& end = ends[draw() % ends.size()];
      (draw() % 2 == 0 ? end.stored : end.plain) = draw() % 4 == 0 ? SIZE_MAX : draw() % 300;
    }
    Buffer out(draw() % 2 == 0 ? 160 : draw() % 200);
    CHECK(inflate_members(changed, ends, out, 1 + draw() % 3) <= ends.size());
  }
}

}  // namespace
}  // namespace recmap
