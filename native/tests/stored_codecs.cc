// Stands in for the compression libraries that recmap takes from Python packages. It decodes the
// parts of their formats in which bytes are stored as they are, so that tests need no compressor.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

uint32_t number(const uint8_t* at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint32_t{at[i]} << (8 * i);
  return value;
}

constexpr size_t kZstdHeader = 9, kZstdBlock = 3;
constexpr size_t kZstdFailed = static_cast<size_t>(-1);
constexpr int kDone = 0, kStreamEnd = 1, kDamaged = -3, kCut = -5;

// Bits of a byte that came before a stream, and the plain bytes before it.
struct Before {
  unsigned bits = 0, value = 0;
  const uint8_t* window = nullptr;
  size_t window_size = 0;
};

// Deflate with stored blocks only. A block of the type that deflate reserves stands for the window.
struct Inflater {
  const uint8_t* from;
  size_t size;
  uint8_t* to;
  size_t room;
  size_t made = 0;

  int run(const Before& before) {
    unsigned bits = before.bits, value = before.value;
    while (true) {
      if (bits < 3) {
        if (size == 0) return kCut;
        value |= static_cast<unsigned>(*from) << bits;
        bits += 8;
        skip(1);
      }
      const bool last = (value & 1) != 0;
      const unsigned type = value >> 1 & 3;
      bits = value = 0;  // what is left of the byte is not used
      if (type == 3) {
        if (!copy(before.window, before.window_size)) return kDone;
      } else {
        if (type != 0) return kDamaged;
        if (size < 4) return kCut;
        const size_t count = number(from, 2);
        if ((count ^ number(from + 2, 2)) != 0xffff) return kDamaged;
        skip(4);
        const size_t there = count < size ? count : size;
        const bool fits = copy(from, there);
        skip(there);
        if (!fits) return kDone;
        if (there < count) return kCut;
      }
      if (last) return kStreamEnd;
    }
  }

  void skip(size_t count) {
    from += count;
    size -= count;
  }

  bool copy(const uint8_t* bytes, size_t count) {
    const size_t fits = count < room - made ? count : room - made;
    if (fits != 0) std::memcpy(to + made, bytes, fits);
    made += fits;
    return fits == count;
  }
};

// As in inflate.cc, up to what is used of them.
struct IsalState {
  uint8_t* next_out;
  uint32_t avail_out, total_out;
  const uint8_t* next_in;
  uint64_t read_in;
  uint32_t avail_in;
  int32_t read_in_length;
  const uint8_t* window;
  uint32_t window_size;
};

struct ZlibStream {
  const uint8_t* next_in;
  uint32_t avail_in;
  size_t total_in;
  uint8_t* next_out;
  uint32_t avail_out;
  size_t total_out;
  const char* msg;
  Before* state;
  void *zalloc, *zfree, *opaque;
  int data_type;
  uint32_t adler;
  unsigned long reserved;
};

}  // namespace

EXPORT int LZ4_decompress_safe(const char* from, char* to, int size, int room) {
  if (size < 1 || static_cast<uint8_t>(from[0]) >> 4 > 14) return -1;
  const int count = static_cast<uint8_t>(from[0]) >> 4;
  if (size != 1 + count || count > room) return -1;
  std::memcpy(to, from + 1, static_cast<size_t>(count));
  return count;
}

EXPORT int blosc_decompress_ctx(const void* from, void* to, size_t room, int) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  const uint32_t size = number(bytes + 4, 4), whole = number(bytes + 12, 4);
  if ((bytes[2] & 2) == 0 || size > room || whole != 16 + size) return -1;
  std::memcpy(to, bytes + 16, size);
  return static_cast<int>(size);
}

EXPORT void* ZSTD_createDCtx() { return std::malloc(1); }
EXPORT size_t ZSTD_freeDCtx(void* context) {
  std::free(context);
  return 0;
}

EXPORT unsigned long long ZSTD_getFrameContentSize(const void* from, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  if (size < kZstdHeader || number(bytes, 4) != 0xfd2fb528 || bytes[4] != 0xa0) {
    return static_cast<unsigned long long>(-2);
  }
  return number(bytes + 5, 4);
}

EXPORT size_t ZSTD_decompressDCtx(void*, void* to, size_t room, const void* from, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  size_t made = 0;
  for (size_t at = kZstdHeader; size - at >= kZstdBlock;) {
    const uint32_t head = number(bytes + at, 3), count = head >> 3;
    at += kZstdBlock;
    if ((head >> 1 & 3) != 0 || count > size - at || count > room - made) return kZstdFailed;
    std::memcpy(static_cast<uint8_t*>(to) + made, bytes + at, count);
    made += count;
    at += count;
    if ((head & 1) != 0) return at == size ? made : kZstdFailed;
  }
  return kZstdFailed;
}

EXPORT void isal_inflate_init(IsalState* state) { std::memset(state, 0, sizeof *state); }
EXPORT int isal_inflate_set_dict(IsalState* state, const uint8_t* window, uint32_t size) {
  state->window = window;
  state->window_size = size;
  return 0;
}

EXPORT int isal_inflate(IsalState* state) {
  Inflater inflater{state->next_in, state->avail_in, state->next_out, state->avail_out};
  const int found =
      inflater.run({static_cast<unsigned>(state->read_in_length),
                    static_cast<unsigned>(state->read_in), state->window, state->window_size});
  state->avail_in = static_cast<uint32_t>(inflater.size);
  state->total_out = static_cast<uint32_t>(inflater.made);
  return found == kStreamEnd ? kDone : found;
}
EXPORT int isal_inflate_stateless(IsalState* state) {
  Inflater inflater{state->next_in, state->avail_in, state->next_out, state->avail_out};
  const int found = inflater.run({});
  state->avail_in = static_cast<uint32_t>(inflater.size);
  state->total_out = static_cast<uint32_t>(inflater.made);
  return found == kStreamEnd ? 0 : -1;
}

EXPORT uint32_t isal_adler32(uint32_t before, const uint8_t* bytes, uint64_t size) {
  uint32_t low = before & 0xffff, high = before >> 16;
  for (uint64_t i = 0; i < size; ++i) {
    low = (low + bytes[i]) % 65521;
    high = (high + low) % 65521;
  }
  return high << 16 | low;
}

EXPORT uint32_t crc32_gzip_refl(uint32_t before, const uint8_t* bytes, uint64_t size) {
  uint32_t crc = ~before;
  for (uint64_t i = 0; i < size; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

// Raw streams only: headers and checksums are zlib-ng's own affair.
EXPORT int32_t zng_inflateInit2(ZlibStream* stream, int32_t window_bits) {
  if (window_bits != -15) return kDamaged;
  stream->state = new Before;
  return kDone;
}

EXPORT int32_t zng_inflatePrime(ZlibStream* stream, int32_t bits, int32_t value) {
  stream->state->bits = static_cast<unsigned>(bits);
  stream->state->value = static_cast<unsigned>(value);
  return kDone;
}

EXPORT int32_t zng_inflateSetDictionary(ZlibStream* stream, const uint8_t* window, uint32_t size) {
  stream->state->window = window;
  stream->state->window_size = size;
  return kDone;
}

EXPORT int32_t zng_inflate(ZlibStream* stream, int32_t) {
  Inflater inflater{stream->next_in, stream->avail_in, stream->next_out, stream->avail_out};
  const int found = inflater.run(*stream->state);
  stream->avail_in = static_cast<uint32_t>(inflater.size);
  stream->total_out = inflater.made;
  return found;
}

EXPORT int32_t zng_inflateEnd(ZlibStream* stream) {
  delete stream->state;
  return kDone;
}
