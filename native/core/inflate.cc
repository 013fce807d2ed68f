#include "inflate.h"

#include <dlfcn.h>

#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>

#include "crc32c.h"
#include "parallel.h"

namespace recmap {
namespace {

// The beginning of ISA-L's inflate_state, which has 87 KB.
struct IsalState {
  uint8_t* next_out;
  uint32_t avail_out;
  uint32_t total_out;
  const uint8_t* next_in;
  uint64_t read_in;
  uint32_t avail_in;
  int32_t read_in_length;
  uint8_t rest[size_t{1} << 18];
};

struct Isal {
  void (*init)(IsalState*);
  int (*set_dict)(IsalState*, const uint8_t*, uint32_t);
  int (*inflate)(IsalState*);
  int (*stateless)(IsalState*);
  uint32_t (*adler32)(uint32_t before, const uint8_t*, uint64_t);
  uint32_t (*crc32)(uint32_t before, const uint8_t*, uint64_t);
};

// zlib-ng's zng_stream.
struct ZlibStream {
  const uint8_t* next_in;
  uint32_t avail_in;
  size_t total_in;
  uint8_t* next_out;
  uint32_t avail_out;
  size_t total_out;
  const char* msg;
  void* state;
  void *zalloc, *zfree, *opaque;
  int data_type;
  uint32_t adler;
  unsigned long reserved;
};

struct ZlibNg {
  int32_t (*init)(ZlibStream*, int32_t window_bits);
  int32_t (*prime)(ZlibStream*, int32_t bits, int32_t value);
  int32_t (*set_dict)(ZlibStream*, const uint8_t*, uint32_t);
  int32_t (*inflate)(ZlibStream*, int32_t flush);
  int32_t (*end)(ZlibStream*);
};

constexpr int kOk = 0, kStreamEnd = 1, kNoFlush = 0, kFinish = 4;
constexpr int kRaw = -15, kZlib = 15, kGzip = 31;

// At most one of them is set.
std::optional<Isal> isal;
std::optional<ZlibNg> zlib_ng;

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

// Both libraries count with 32 bits.
bool countable(Bytes stream, std::span<uint8_t> out) {
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  return stream.size() <= kMost && out.size() <= kMost;
}

// This thread's state, as new; nullptr without memory.
IsalState* aimed(Bytes stream, std::span<uint8_t> out) {
  thread_local const std::unique_ptr<IsalState> state(new (std::nothrow) IsalState);
  if (state == nullptr) return nullptr;
  isal->init(state.get());
  state->next_in = stream.data();
  state->avail_in = static_cast<uint32_t>(stream.size());
  state->next_out = out.data();
  state->avail_out = static_cast<uint32_t>(out.size());
  return state.get();
}

class ZlibInflater {
 public:
  ZlibInflater(Bytes stream, std::span<uint8_t> out, int window_bits) : size_(out.size()) {
    stream_.next_in = stream.data();
    stream_.avail_in = static_cast<uint32_t>(stream.size());
    stream_.next_out = out.data();
    stream_.avail_out = static_cast<uint32_t>(out.size());
    sound_ = zlib_ng->init(&stream_, window_bits) == kOk;
  }
  ~ZlibInflater() {
    if (sound_) zlib_ng->end(&stream_);
  }
  ZlibInflater(const ZlibInflater&) = delete;
  ZlibInflater& operator=(const ZlibInflater&) = delete;

  bool whole() {
    return sound_ && zlib_ng->inflate(&stream_, kFinish) == kStreamEnd && stream_.avail_in == 0 &&
           stream_.total_out == size_;
  }

  bool rest(unsigned bits, int before, Bytes window) {
    if (!sound_) return false;
    if (bits != 0) zlib_ng->prime(&stream_, static_cast<int32_t>(bits), before);
    if (!window.empty()) {
      zlib_ng->set_dict(&stream_, window.data(), static_cast<uint32_t>(window.size()));
    }
    zlib_ng->inflate(&stream_, kNoFlush);
    return stream_.total_out == size_;
  }

 private:
  ZlibStream stream_{};
  size_t size_;
  bool sound_;
};

uint32_t big_endian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

uint32_t little_endian(const uint8_t* at) {
  return uint32_t{at[3]} << 24 | uint32_t{at[2]} << 16 | uint32_t{at[1]} << 8 | at[0];
}

// The size of a member's header; nullopt if it is none, is cut, or has a checksum of its own.
std::optional<size_t> gzip_header(Bytes member) {
  constexpr size_t kFixed = 10;
  constexpr uint8_t kExtra = 4, kName = 8, kComment = 16, kRefused = 0xe2;
  static constexpr uint8_t kMagic[] = {0x1f, 0x8b, 8};
  if (member.size() < kFixed || std::memcmp(member.data(), kMagic, sizeof kMagic) != 0) {
    return std::nullopt;
  }
  const uint8_t flags = member[3];
  if ((flags & kRefused) != 0) return std::nullopt;
  size_t at = kFixed;
  if ((flags & kExtra) != 0) {
    if (member.size() - at < 2) return std::nullopt;
    const size_t extra = member[at] | size_t{member[at + 1]} << 8;
    at += 2;
    if (member.size() - at < extra) return std::nullopt;
    at += extra;
  }
  for (const uint8_t flag : {kName, kComment}) {
    if ((flags & flag) == 0) continue;
    const void* end =
        at < member.size() ? std::memchr(member.data() + at, 0, member.size() - at) : nullptr;
    if (end == nullptr) return std::nullopt;
    at = static_cast<size_t>(static_cast<const uint8_t*>(end) - member.data()) + 1;
  }
  return at;
}

}  // namespace

bool use_isal_of(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // stays open
  Isal found{};
  const bool all = handle != nullptr && find(handle, "isal_inflate_init", found.init) &&
                   find(handle, "isal_inflate_set_dict", found.set_dict) &&
                   find(handle, "isal_inflate", found.inflate) &&
                   find(handle, "isal_inflate_stateless", found.stateless) &&
                   find(handle, "isal_adler32", found.adler32) &&
                   find(handle, "crc32_gzip_refl", found.crc32);
  if (!all) return false;
  isal = found;
  zlib_ng.reset();
  return true;
}

bool use_zlib_ng_of(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // stays open
  ZlibNg found{};
  const bool all = handle != nullptr && find(handle, "zng_inflateInit2", found.init) &&
                   find(handle, "zng_inflatePrime", found.prime) &&
                   find(handle, "zng_inflateSetDictionary", found.set_dict) &&
                   find(handle, "zng_inflate", found.inflate) &&
                   find(handle, "zng_inflateEnd", found.end);
  if (!all) return false;
  zlib_ng = found;
  isal.reset();
  return true;
}

bool inflate_raw(Bytes stream, std::span<uint8_t> out) {
  if (!countable(stream, out)) return false;
  if (zlib_ng) return ZlibInflater(stream, out, kRaw).whole();
  IsalState* const state = isal ? aimed(stream, out) : nullptr;
  return state != nullptr && isal->stateless(state) == kOk && state->avail_in == 0 &&
         state->total_out == out.size();
}

bool inflate_zlib(Bytes stream, std::span<uint8_t> out) {
  constexpr size_t kHeader = 2, kTrailer = 4;
  if (zlib_ng) return countable(stream, out) && ZlibInflater(stream, out, kZlib).whole();
  if (!isal || stream.size() < kHeader + kTrailer) return false;
  const unsigned first = stream[0], second = stream[1];
  constexpr unsigned kMethod = 0x0f, kDeflate = 8, kMostWindow = 0x7f, kDictionary = 0x20;
  if ((first & kMethod) != kDeflate || first > kMostWindow || (second & kDictionary) != 0 ||
      (first << 8 | second) % 31 != 0) {
    return false;
  }
  const Bytes body = stream.subspan(kHeader, stream.size() - kHeader - kTrailer);
  return inflate_raw(body, out) &&
         isal->adler32(1, out.data(), out.size()) == big_endian(body.data() + body.size());
}

bool inflate_gzip(Bytes stream, std::span<uint8_t> out) {
  constexpr size_t kTrailer = 8;
  if (zlib_ng) return countable(stream, out) && ZlibInflater(stream, out, kGzip).whole();
  const std::optional<size_t> header = isal ? gzip_header(stream) : std::nullopt;
  if (!header || stream.size() - *header < kTrailer) return false;
  const Bytes body = stream.subspan(*header, stream.size() - *header - kTrailer);
  const uint8_t* const trailer = body.data() + body.size();
  return little_endian(trailer + 4) == static_cast<uint32_t>(out.size()) &&
         inflate_raw(body, out) && isal->crc32(0, out.data(), out.size()) == little_endian(trailer);
}

bool inflate_rest(Bytes rest, unsigned bits, Bytes window, std::span<uint8_t> out) {
  if (!countable(rest, out) || bits > 7 || (bits != 0 && rest.empty())) return false;
  const int before = bits != 0 ? rest[0] >> (8 - bits) : 0;
  const Bytes stream = rest.subspan(bits != 0 ? 1 : 0);
  if (zlib_ng) return ZlibInflater(stream, out, kRaw).rest(bits, before, window);
  IsalState* const state = isal ? aimed(stream, out) : nullptr;
  if (state == nullptr) return false;
  state->read_in = static_cast<uint64_t>(before);
  state->read_in_length = static_cast<int32_t>(bits);
  if (!window.empty()) {
    isal->set_dict(state, window.data(), static_cast<uint32_t>(window.size()));
  }
  isal->inflate(state);
  return state->total_out == out.size();
}

size_t inflate_parts(std::span<const StreamPart> parts, size_t threads) {
  return first_failure(parts.size(), threads, [&](size_t i) {
    const StreamPart& part = parts[i];
    return inflate_rest(part.rest, part.bits, part.window, part.out) &&
           crc32c_extend(part.crc_before, part.out.data(), part.out.size()) == part.crc_after;
  });
}

}  // namespace recmap
