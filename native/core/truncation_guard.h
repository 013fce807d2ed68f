// Surviving the truncation of a mapped file. Touching a page behind the end of a file raises
// SIGBUS, which kills the process. While a thread is inside a TruncationGuard, such a page is
// replaced by one of zeros, and the read goes on; whoever entered the guard asks afterwards whether
// that happened to a file that it read, and discards what was read. Everywhere else, for memory
// that is not one of our mapped files, and for signals that somebody sent, SIGBUS does what it did
// before. All functions are safe to call from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace recmap {

// A mapped file as the signal handler sees it.
struct MappedRange {
  static constexpr size_t kWhole = SIZE_MAX;

  std::atomic<uintptr_t> begin{0};  // 0 while unused
  std::atomic<size_t> size{0};
  std::atomic<size_t> end{kWhole};      // where the file was found to end, if it was truncated
  std::atomic<uint64_t> truncation{0};  // the number of the last truncation found in it, if any
  std::string name;                     // what users call the file; not read by the handler
};

// Makes a mapping known to the signal handler, until it is unregistered, which must be before
// munmap().
MappedRange* register_range(const void* begin, size_t size, std::string name);
void unregister_range(MappedRange* range);

// How many truncations were found in this process so far. They are numbered from 1.
uint64_t truncations_seen();

size_t page_size();

// Whether a mapped page can be read without raising a signal.
bool is_readable(const uint8_t* page);

// The mapped files whose truncation was found after the first `since`, and those that are truncated
// but were not found yet, whose number is 0.
struct TruncatedFile {
  std::string name;
  size_t size, end;
  uint64_t number;
};
std::vector<TruncatedFile> truncated_files(uint64_t since);

class TruncationGuard {
 public:
  TruncationGuard();
  ~TruncationGuard();
  TruncationGuard(const TruncationGuard&) = delete;
  TruncationGuard& operator=(const TruncationGuard&) = delete;

  // Whether this thread is inside a guard.
  static bool active();
  // For guards that do not follow a scope. Each enter() needs a leave() on the same thread.
  static void enter();
  static void leave();
  // The number of the last truncation that this thread, or one that helped it, ran into.
  static uint64_t last_found();
  // Takes over what another thread ran into while it helped this one.
  static void take_over(uint64_t found);
};

}  // namespace recmap
