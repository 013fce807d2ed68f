// Members of gzip files that state their size, so that many of them can be inflated at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire.h"

namespace recmap {

// Larger members are inflated as a stream, to save memory.
inline constexpr size_t kMostMember = size_t{1} << 19;

// The size of the member that begins with these bytes, which it states in an extra field: `IG`, as
// pgzip and mgzip write it, or bgzip's `BC`. nullopt if it states none, or one over kMostMember.
std::optional<size_t> member_size(Bytes head);

// Where a member ends, in the file and in the plain bytes.
struct MemberEnd {
  size_t stored, plain;
};

// Where the members end that `stored` begins with and holds completely, as they themselves state
// it, and together make up to `most` plain bytes. What they state may be wrong, but so many bytes
// could hold so many plain ones.
std::vector<MemberEnd> find_members(Bytes stored, size_t most);

// Inflates these members into `out`, one after another, on up to `threads` threads. Returns how
// many there are before the first one that is not sound, or that does not fit. What `out` holds
// from there on is unspecified. Any bytes and any ends are safe. Safe to call from any thread.
size_t inflate_members(Bytes stored, std::span<const MemberEnd> ends, std::span<uint8_t> out,
                       size_t threads);

}  // namespace recmap
