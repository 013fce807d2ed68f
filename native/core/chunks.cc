#include "chunks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>

#include "buffer_pool.h"
#include "crc32c.h"
#include "inflate.h"
#include "lzf.h"
#include "parallel.h"
#include "shuffle.h"

namespace recmap {
namespace {

using Room = std::span<uint8_t>;

struct Zstd {
  void* (*create)();
  size_t (*free)(void*);
  size_t (*decompress)(void*, void* to, size_t room, const void* from, size_t size);
  unsigned long long (*content_size)(const void* from, size_t size);
};

struct Libraries {
  std::optional<Zstd> zstd;
  int (*lz4)(const char* from, char* to, int size, int room) = nullptr;
  int (*blosc)(const void* from, void* to, size_t room, int threads) = nullptr;
} libraries;

constexpr size_t kMostInt = std::numeric_limits<int>::max();
constexpr size_t kChecksum = 4;
// The most that deflate and LZ4 grow by.
constexpr size_t kDeflateGrowth = 1032, kLz4Growth = 255;
// What is stored of a chunk is not larger than twice the chunk and this.
constexpr size_t kMoreThanChunk = size_t{1} << 16;

uint32_t little_endian(const uint8_t* at) {
  return uint32_t{at[3]} << 24 | uint32_t{at[2]} << 16 | uint32_t{at[1]} << 8 | at[0];
}

uint32_t big_endian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

uint64_t big_endian_64(const uint8_t* at) {
  return uint64_t{big_endian(at)} << 32 | big_endian(at + 4);
}

// One frame, whose header tells its size.
bool expand_zstd(Bytes data, Room out) {
  struct Free {
    void operator()(void* context) const { libraries.zstd->free(context); }
  };
  thread_local const std::unique_ptr<void, Free> context(libraries.zstd->create());
  return context != nullptr &&
         libraries.zstd->content_size(data.data(), data.size()) == out.size() &&
         libraries.zstd->decompress(context.get(), out.data(), out.size(), data.data(),
                                    data.size()) == out.size();
}

bool expand_lz4_block(Bytes data, Room out) {
  if (data.size() > kMostInt || out.size() > kMostInt) return false;
  const int made =
      libraries.lz4(reinterpret_cast<const char*>(data.data()), reinterpret_cast<char*>(out.data()),
                    static_cast<int>(data.size()), static_cast<int>(out.size()));
  return made >= 0 && static_cast<size_t>(made) == out.size();
}

bool expand_block(CodecKind kind, Bytes data, Room out) {
  return kind == CodecKind::kZstd ? expand_zstd(data, out) : expand_lz4_block(data, out);
}

// The blocks of two filters of HDF5: the size of all, the size of one, and each after its size.
struct Blocks {
  static constexpr size_t kHeader = 12, kEach = 4;

  size_t block;
  Bytes rest;

  static std::optional<Blocks> of(Bytes data, size_t size) {
    if (data.size() < kHeader || big_endian_64(data.data()) != size) return std::nullopt;
    const size_t block = big_endian(data.data() + 8);
    if (block == 0 || size / block > data.size()) return std::nullopt;
    return Blocks{block, data.subspan(kHeader)};
  }

  // Decodes blocks until `out` is full.
  template <typename Expand>
  bool expand(Room out, Expand&& expand_one) {
    while (!out.empty()) {
      const Room room = out.first(std::min(block, out.size()));
      if (rest.size() < kEach) return false;
      const size_t packed = big_endian(rest.data());
      if (packed == 0 || rest.size() - kEach < packed) return false;
      if (!expand_one(rest.subspan(kEach, packed), room)) return false;
      rest = rest.subspan(kEach + packed);
      out = out.subspan(room.size());
    }
    return true;
  }
};

bool expand_hdf5_lz4(Bytes data, Room out) {
  auto blocks = Blocks::of(data, out.size());
  return blocks && blocks->expand(out, [](Bytes packed, Room room) {
    if (packed.size() < room.size()) return expand_lz4_block(packed, room);
    if (packed.size() > room.size()) return false;
    std::copy(packed.begin(), packed.end(), room.begin());
    return true;
  });
}

bool expand_bitshuffle(const ChunkCodec& codec, Bytes data, Room out) {
  if (codec.item_size == 0) return false;
  if (!codec.inner) return unbitshuffle(data, codec.item_size, codec.block_items, out);
  auto blocks = Blocks::of(data, out.size());
  if (!blocks || blocks->block % (8 * codec.item_size) != 0) return false;
  const size_t whole = out.size() / codec.item_size / 8 * 8 * codec.item_size;
  PooledArray<uint8_t> held(out.size());
  const Room planes(&held[0], out.size());
  const bool sound = blocks->expand(planes.first(whole), [&](Bytes packed, Room room) {
    return expand_block(*codec.inner, packed, room);
  });
  if (!sound || blocks->rest.size() != out.size() - whole) return false;
  std::copy(blocks->rest.begin(), blocks->rest.end(), planes.begin() + static_cast<long>(whole));
  return unbitshuffle(planes, codec.item_size, blocks->block / codec.item_size, out);
}

bool expand_blosc(Bytes data, Room out) {
  constexpr size_t kHeader = 16;
  return data.size() >= kHeader && little_endian(data.data() + 4) == out.size() &&
         little_endian(data.data() + 12) == data.size() && out.size() <= kMostInt &&
         libraries.blosc(data.data(), out.data(), out.size(), 1) == static_cast<int>(out.size());
}

bool compresses(const ChunkCodec& codec) {
  switch (codec.kind) {
    case CodecKind::kShuffle:
    case CodecKind::kFletcher32:
    case CodecKind::kCrc32c:
      return false;
    case CodecKind::kBitshuffle:
      return codec.inner.has_value();
    default:
      return true;
  }
}

bool is_checksum(const ChunkCodec& codec) {
  return codec.kind == CodecKind::kFletcher32 || codec.kind == CodecKind::kCrc32c;
}

// Whether so many bytes can be made of these, so that it is worth having room for them.
bool can_make(const ChunkCodec& codec, Bytes data, size_t size) {
  switch (codec.kind) {
    case CodecKind::kZlib:
    case CodecKind::kGzip:
      return size / kDeflateGrowth <= data.size();
    case CodecKind::kLzf:
      return size / kLzfMostGrowth <= data.size();
    case CodecKind::kZstd:
      return libraries.zstd && libraries.zstd->content_size(data.data(), data.size()) == size;
    case CodecKind::kLz4:
      return libraries.lz4 != nullptr && data.size() >= 4 && little_endian(data.data()) == size &&
             size / kLz4Growth <= data.size();
    case CodecKind::kHdf5Lz4:
      return libraries.lz4 != nullptr && size / kLz4Growth <= data.size();
    case CodecKind::kBlosc:
      return libraries.blosc != nullptr;
    case CodecKind::kBitshuffle:
      if (codec.inner == CodecKind::kLz4) {
        return libraries.lz4 != nullptr && size / kLz4Growth <= data.size();
      }
      return !codec.inner || libraries.zstd.has_value();
    default:
      return true;
  }
}

bool expand(const ChunkCodec& codec, Bytes data, Room out) {
  switch (codec.kind) {
    case CodecKind::kZlib:
      return inflate_zlib(data, out);
    case CodecKind::kGzip:
      return inflate_gzip(data, out);
    case CodecKind::kZstd:
      return expand_zstd(data, out);
    case CodecKind::kLz4:
      return expand_lz4_block(data.subspan(4), out);
    case CodecKind::kHdf5Lz4:
      return expand_hdf5_lz4(data, out);
    case CodecKind::kBlosc:
      return expand_blosc(data, out);
    case CodecKind::kLzf:
      return lzf_expand(data, out).fault == LzfFault::kNone;
    case CodecKind::kShuffle:
      return unshuffle(data, std::max<size_t>(codec.item_size, 1), out);
    case CodecKind::kBitshuffle:
      return expand_bitshuffle(codec, data, out);
    default:
      return false;
  }
}

// Checks and drops the checksum at the end of `data`.
bool check(CodecKind kind, Bytes& data) {
  if (data.size() < kChecksum) return false;
  const Bytes rest = data.first(data.size() - kChecksum);
  const uint32_t stored = little_endian(rest.data() + rest.size());
  data = rest;
  if (kind == CodecKind::kCrc32c) return crc32c_extend(0, rest.data(), rest.size()) == stored;
  const uint32_t found = fletcher32(rest);
  // HDF5 up to 1.6.2 swapped the two bytes of each half.
  return stored == found || stored == ((found & 0x00ff00ff) << 8 | (found >> 8 & 0x00ff00ff));
}

// The bytes of a chunk, and what holds them if they were read from a file.
class Stored {
 public:
  // Returns false if they cannot be read. More than `most` are not.
  bool load(const StoredAt& stored, size_t most) {
    if (const auto* bytes = std::get_if<Bytes>(&stored.where)) {
      bytes_ = *bytes;
      return true;
    }
    if (const auto* open_file = std::get_if<int>(&stored.where)) {
      return stored.size <= most && read(*open_file, stored.offset, stored.size);
    }
    const int file = open(std::get<const char*>(stored.where), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    struct stat found{};
    const bool sound = fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                       static_cast<uint64_t>(found.st_size) <= most &&
                       read(file, 0, static_cast<size_t>(found.st_size));
    close(file);
    return sound;
  }

  Bytes bytes() const { return bytes_; }

 private:
  bool read(int file, size_t offset, size_t size) {
    held_ = PooledArray<uint8_t>(std::max<size_t>(size, 1));
    for (size_t done = 0; done < size;) {
      const ssize_t count =
          pread(file, &held_[done], size - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    bytes_ = {&held_[0], size};
    return true;
  }

  PooledArray<uint8_t> held_;
  Bytes bytes_;
};

// Puts rows of a decoded chunk in their place, if the chunk and the place have these rows.
bool place(const ChunkPart& part, const std::variant<RowSpan, RowNumbers>& rows, Bytes chunk,
           Room out) {
  const size_t from_rows = chunk.size() / std::max<size_t>(part.from_row, 1);
  const size_t to_rows = out.size() / std::max<size_t>(part.to_row, 1);
  const auto copy = [&](size_t from, size_t to) {
    copy_box(out.data() + to * part.to_row + part.at, chunk.data() + from * part.from_row,
             part.axes, part.run);
  };
  if (const auto* span = std::get_if<RowSpan>(&rows)) {
    if (span->from > from_rows || span->count > from_rows - span->from) return false;
    if (span->to > to_rows || span->count > to_rows - span->to) return false;
    if (part.axes.empty() && part.run == part.from_row && part.run == part.to_row) {
      std::memcpy(out.data() + span->to * part.run, chunk.data() + span->from * part.run,
                  span->count * part.run);
      return true;
    }
    for (size_t i = 0; i < span->count; ++i) copy(span->from + i, span->to + i);
    return true;
  }
  const auto& [from, to] = std::get<RowNumbers>(rows);
  const auto below = [](size_t count) {
    return [count](int64_t row) { return static_cast<uint64_t>(row) < count; };
  };
  if (from.size() != to.size() || !std::all_of(from.begin(), from.end(), below(from_rows)) ||
      !std::all_of(to.begin(), to.end(), below(to_rows))) {
    return false;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    copy(static_cast<size_t>(from[i]), static_cast<size_t>(to[i]));
  }
  return true;
}

bool do_job(std::span<const ChunkCodec> codecs, const ChunkJob& job) {
  const size_t size = job.part == nullptr ? job.out.size() : job.part->chunk_bytes;
  Stored stored;
  if (size > SIZE_MAX / 4 || !stored.load(job.stored, 2 * size + kMoreThanChunk)) return false;
  if (job.part == nullptr) return decode_chunk(codecs, job.mask, stored.bytes(), job.out);
  const ChunkPart& part = *job.part;
  if (size == 0 || part.at > part.to_row) return false;
  if (!box_fits(part.axes, part.run, part.from_row, part.to_row - part.at)) return false;
  PooledArray<uint8_t> held(size);
  const Room chunk(&held[0], size);
  return decode_chunk(codecs, job.mask, stored.bytes(), chunk) &&
         place(part, job.rows, chunk, job.out);
}

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

}  // namespace

bool use_codec_of(CodecKind kind, const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // stays open
  if (handle == nullptr) return false;
  if (kind == CodecKind::kLz4) return find(handle, "LZ4_decompress_safe", libraries.lz4);
  if (kind == CodecKind::kBlosc) return find(handle, "blosc_decompress_ctx", libraries.blosc);
  Zstd found{};
  const bool all = kind == CodecKind::kZstd && find(handle, "ZSTD_createDCtx", found.create) &&
                   find(handle, "ZSTD_freeDCtx", found.free) &&
                   find(handle, "ZSTD_decompressDCtx", found.decompress) &&
                   find(handle, "ZSTD_getFrameContentSize", found.content_size);
  if (all) libraries.zstd = found;
  return all;
}

bool decode_chunk(std::span<const ChunkCodec> codecs, uint64_t mask, Bytes stored, Room out) try {
  std::vector<ChunkCodec> used;
  for (size_t i = 0; i < codecs.size(); ++i) {
    if (i >= 64 || (mask >> i & 1) == 0) used.push_back(codecs[i]);
  }
  PooledArray<uint8_t> held, next;
  while (!used.empty()) {
    const ChunkCodec codec = used.back();
    used.pop_back();
    if (is_checksum(codec)) {
      if (!check(codec.kind, stored)) return false;
      continue;
    }
    size_t size = stored.size();
    if (compresses(codec)) {
      const auto sums = std::count_if(used.begin(), used.end(), is_checksum);
      size = out.size() + kChecksum * static_cast<size_t>(sums);
    }
    if (used.empty()) {
      return size == out.size() && can_make(codec, stored, size) && expand(codec, stored, out);
    }
    if (size == 0 || !can_make(codec, stored, size)) return false;
    next = PooledArray<uint8_t>(size);
    const Room room(&next[0], size);
    if (!expand(codec, stored, room)) return false;
    std::swap(held, next);
    stored = room;
  }
  if (stored.size() != out.size()) return false;
  std::copy(stored.begin(), stored.end(), out.begin());
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

std::vector<size_t> decode_chunks(std::span<const ChunkCodec> codecs,
                                  std::span<const ChunkJob> jobs, size_t threads) {
  std::vector<size_t> failed;
  std::mutex mutex;
  each_block(jobs.size(), 1, threads, [&](size_t i, size_t) {
    bool sound = false;
    try {
      sound = do_job(codecs, jobs[i]);
    } catch (const std::bad_alloc&) {
    }
    if (sound) return;
    const std::lock_guard lock(mutex);
    failed.push_back(i);
  });
  std::sort(failed.begin(), failed.end());
  return failed;
}

}  // namespace recmap
