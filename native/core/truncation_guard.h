// Reads of mapped files that survive the file being cut. Touching a page behind the end of a
// file raises SIGBUS, which kills the process. While a thread is inside a TruncationGuard, such a
// page becomes one of zeros instead, and the read goes on; whoever opened the guard asks
// afterwards whether that happened, and throws away what was read. Everywhere else, and for
// memory that is not a mapped file of ours, SIGBUS does what it did before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace recmap {

// A mapped file as the signal handler sees it.
struct MappedRange {
  static constexpr size_t kWhole = SIZE_MAX;

  std::atomic<uintptr_t> begin{0};  // 0 while it is not in use
  std::atomic<size_t> size{0};
  std::atomic<size_t> end{kWhole};  // where the file was found to end, if it was cut
  std::atomic<uint64_t> cut{0};     // which of all cuts that was
  std::string name;                 // of the file, for people; not for the handler
};

// Has the signal handler know a mapping until it is forgotten, which comes before munmap().
MappedRange* register_range(const void* begin, size_t size, std::string name);
void unregister_range(MappedRange* range);

// How often a file was found to be cut, in this process so far.
uint64_t truncations_seen();

size_t page_size();

// Whether a mapped page can be read without a signal.
bool is_readable(const uint8_t* page);

// The mapped file that was found to be cut last, but not before there were so many cuts; or
// one that is cut and was not found yet.
struct TruncatedFile {
  std::string name;
  size_t size, end;
};
std::optional<TruncatedFile> truncated_file(uint64_t since);

class TruncationGuard {
 public:
  TruncationGuard();
  ~TruncationGuard();
  TruncationGuard(const TruncationGuard&) = delete;
  TruncationGuard& operator=(const TruncationGuard&) = delete;

  // Whether this thread is inside of one.
  static bool active();
  // For guards that do not follow a scope; each enter() needs a leave() in the same thread.
  static void enter();
  static void leave();
};

}  // namespace recmap
