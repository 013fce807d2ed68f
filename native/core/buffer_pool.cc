#include "buffer_pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>
#include <mutex>
#include <vector>

#include "page_lock.h"
#include "start_thread.h"
#include "truncation_guard.h"

namespace recmap {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr time_t kSecondsKept = 1;

std::atomic<bool> in_child{false};

// Rounds up by an eighth at most, so that a slightly larger batch fits next time. The pages in
// between are never touched.
size_t rounded(size_t size) {
  const size_t step = std::max<size_t>(std::bit_floor(size) / 8, 4096);
  return (size + step - 1) / step * step;
}

uint8_t* map(size_t size) {
  void* const data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<uint8_t*>(data);
}

PooledBuffer allocate(size_t size) {
  const size_t capacity = rounded(size);
  if (capacity < size) return {};
  if (capacity < kHugePage) return {map(capacity), capacity};
  uint8_t* const data = map(capacity + kHugePage);
  if (data == nullptr) return {map(capacity), capacity};
  const size_t before = -reinterpret_cast<uintptr_t>(data) % kHugePage;
  if (before != 0) munmap(data, before);
  munmap(data + before + capacity, kHugePage - before);
#if defined(MADV_HUGEPAGE)
  madvise(data + before, capacity, MADV_HUGEPAGE);
#endif
  return {data + before, capacity};
}

// Unlocking pages waits for the GPU, so no lock must be held.
void release(PooledBuffer buffer) {
  if (buffer.locked) unlock_pages(buffer.data);
  munmap(buffer.data, buffer.capacity);
}

void release(const std::vector<PooledBuffer>& buffers) {
  for (const PooledBuffer& buffer : buffers) release(buffer);
}

time_t seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

class BufferPool {
 public:
  BufferPool() { kept_.reserve(kMostKept); }

  PooledBuffer take(size_t size, bool locked) {
    PooledBuffer buffer;
    if (reuse(size, locked, buffer)) return buffer;
    if (!make(size, buffer)) return {};
    if (locked && !in_child) buffer.locked = lock_pages(buffer.data, buffer.capacity);
    return buffer;
  }

  void give(PooledBuffer buffer) {
    {
      const std::lock_guard lock(mutex_);
      used_bytes_ -= buffer.capacity;
      // The driver knows nothing of a forked child, and may have kept its memory from it.
      if (buffer.locked && in_child) return;
      const bool fits = kept_bytes_ + buffer.capacity <= most_kept_bytes();
      if (kept_.size() < kMostKept && (fits || buffer.locked) && start_janitor()) {
        kept_bytes_ += buffer.capacity;
        // The janitor releases it, if there are too many.
        kept_.push_back({buffer, fits ? seconds() : 0});
        return;
      }
    }
    release(buffer);
  }

  size_t release_all() {
    std::vector<PooledBuffer> released;
    {
      const std::lock_guard lock(mutex_);
      released = drop([](const Kept&) { return true; });
      most_used_bytes_ = used_bytes_;
    }
    release(released);
    size_t bytes = 0;
    for (const PooledBuffer& buffer : released) bytes += buffer.capacity;
    return bytes;
  }

  size_t kept_bytes() {
    const std::lock_guard lock(mutex_);
    return kept_bytes_;
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  // A forked child has no thread but the one that forked.
  void unlock_in_child() {
    in_child = true;
    has_janitor_ = false;
    drop([](const Kept& kept) { return kept.buffer.locked; });
    mutex_.unlock();
  }

 private:
  static constexpr size_t kMostKept = 256;

  struct Kept {
    PooledBuffer buffer;
    time_t since;
  };

  bool reuse(size_t size, bool locked, PooledBuffer& buffer) {
    const std::lock_guard lock(mutex_);
    // The last that was given back, because a CPU may still have it in its cache. A small batch
    // should not occupy a buffer that is much too large.
    const auto fits = [&](const Kept& kept) {
      return kept.buffer.capacity >= size && kept.buffer.capacity / 2 <= size &&
             kept.buffer.locked == locked;
    };
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(), fits);
    if (found == kept_.rend()) return false;
    buffer = found->buffer;
    kept_.erase(std::next(found).base());
    kept_bytes_ -= buffer.capacity;
    used_bytes_ += buffer.capacity;
    return true;
  }

  bool make(size_t size, PooledBuffer& buffer) {
    buffer = allocate(size);
    if (buffer.data == nullptr && release_all() != 0) buffer = allocate(size);
    if (buffer.data == nullptr) return false;
    std::vector<PooledBuffer> released;
    {
      const std::lock_guard lock(mutex_);
      used_bytes_ += buffer.capacity;
      most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
      released = drop([&](const Kept&) { return used_bytes_ + kept_bytes_ > most_used_bytes_; });
    }
    release(released);
    return true;
  }

  // Takes buffers out of the pool, the oldest first, that `which` wants out.
  template <typename Which>
  std::vector<PooledBuffer> drop(Which&& which) {
    std::vector<PooledBuffer> dropped;
    std::erase_if(kept_, [&](const Kept& kept) {
      if (!which(kept)) return false;
      kept_bytes_ -= kept.buffer.capacity;
      dropped.push_back(kept.buffer);
      return true;
    });
    return dropped;
  }

  // Starts the thread that returns buffers to the system, unless it runs. It ends with the last.
  bool start_janitor() {
    pthread_t thread;
    return has_janitor_ || (has_janitor_ = start_thread(&tidy_up, this, thread));
  }

  static void* tidy_up(void* pool) {
    while (static_cast<BufferPool*>(pool)->release_old()) {
      const timespec pause{kSecondsKept, 0};
      nanosleep(&pause, nullptr);
    }
    return nullptr;
  }

  // Returns whether any are left.
  bool release_old() {
    std::vector<PooledBuffer> released;
    bool left = true;
    {
      const std::lock_guard lock(mutex_);
      const time_t now = seconds();
      released = drop([&](const Kept& kept) { return now - kept.since > kSecondsKept; });
      if (kept_.empty()) {
        most_used_bytes_ = used_bytes_;
        left = has_janitor_ = false;
      }
    }
    release(released);
    return left;
  }

  std::mutex mutex_;        // guards what follows
  std::vector<Kept> kept_;  // the oldest first
  size_t kept_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t most_used_bytes_ = 0;  // since the pool was last empty
  bool has_janitor_ = false;
};

// Never destroyed, because arrays may outlive everything else.
BufferPool& pool() {
  static BufferPool& only = []() -> BufferPool& {
    static auto& made = *new BufferPool;
    pthread_atfork([] { made.lock(); }, [] { made.unlock(); }, [] { made.unlock_in_child(); });
    return made;
  }();
  return only;
}

}  // namespace

void prepare_buffers() {
  pool();
  most_kept_bytes();
}

PooledBuffer take_buffer(size_t size, bool locked) { return pool().take(size, locked); }

void give_buffer(PooledBuffer buffer) { pool().give(buffer); }

size_t release_buffers() { return pool().release_all(); }

size_t pooled_bytes() { return pool().kept_bytes(); }

size_t most_kept_bytes() {
  static const size_t bytes = [] {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const size_t memory = pages > 0 ? static_cast<size_t>(pages) * page_size() : 0;
    return std::clamp(memory / 64, size_t{32} << 20, size_t{1} << 30);
  }();
  return bytes;
}

}  // namespace recmap
