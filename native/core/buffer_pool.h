// Memory for batches, used again once it is given back: pages that are new to the process have to
// be cleared by the system first, which takes as long as filling them, and all threads wait for one
// another. There is one pool in a process. All functions are safe to call from any thread, and
// after a fork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace recmap {

struct PooledBuffer {
  uint8_t* data = nullptr;  // nullptr if there is no memory
  size_t capacity = 0;
  bool locked = false;  // whether GPUs can copy from it by themselves
};

// Makes the process ready to fork at any time. Call it once, when the program begins.
void prepare_buffers();

// A buffer of at least `size` bytes, not cleared, that begins on a page. Large ones begin on a huge
// page, where the system has them. With `locked`, GPUs can copy from it (page_lock.h), if
// prepare_to_lock_pages() has found one: locking takes longer than filling a buffer, but a buffer
// stays locked as long as it is used again and again. Only for callers that keep it until the GPU
// is done.
PooledBuffer take_buffer(size_t size, bool locked = false);

// Gives a buffer back. The pool keeps it for a second or two. Kept buffers and those in use
// together never take more than those in use did at some time since the pool was last empty.
void give_buffer(PooledBuffer buffer);

// Returns what the pool keeps to the system. Returns how many bytes that were.
size_t release_buffers();

// Room for values that are written before they are read. Large ones come from the pool.
template <typename T>
class PooledArray {
 public:
  PooledArray() = default;
  explicit PooledArray(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    if (count > kLargest / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = count * sizeof(T);
    if (bytes < kSmallest) {
      own_ = std::make_unique_for_overwrite<uint8_t[]>(bytes);
      values_ = reinterpret_cast<T*>(own_.get());
      return;
    }
    buffer_ = take_buffer(bytes);
    if (buffer_.data == nullptr) throw std::bad_alloc();
    values_ = reinterpret_cast<T*>(buffer_.data);
  }
  ~PooledArray() {
    if (buffer_.data != nullptr) give_buffer(buffer_);
  }
  PooledArray(PooledArray&& other) noexcept { *this = std::move(other); }
  PooledArray& operator=(PooledArray&& other) noexcept {
    std::swap(own_, other.own_);
    std::swap(buffer_, other.buffer_);
    std::swap(values_, other.values_);
    return *this;
  }

  bool empty() const { return values_ == nullptr; }
  T& operator[](size_t i) { return values_[i]; }
  const T& operator[](size_t i) const { return values_[i]; }

 private:
  static constexpr size_t kSmallest = size_t{1} << 17;
  static constexpr size_t kLargest = SIZE_MAX / 2;

  std::unique_ptr<uint8_t[]> own_;
  PooledBuffer buffer_;
  T* values_ = nullptr;
};

// How many bytes the pool keeps, and the most that it ever does.
size_t pooled_bytes();
size_t most_kept_bytes();

}  // namespace recmap
