#include "truncation_guard.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

namespace recmap {
namespace {

// Ranges live in blocks that are never freed, so that the handler needs no lock.
struct Block {
  static constexpr size_t kRanges = 1024;
  MappedRange ranges[kRanges];
  std::atomic<Block*> next{nullptr};
};

Block first_block;
std::mutex registry;  // guards what follows; never taken by the handler
std::vector<MappedRange*>& unused_ranges() {
  static auto& ranges = *new std::vector<MappedRange*>;  // never freed: files are unmapped at exit
  return ranges;
}
std::atomic<uint64_t> truncations{0};
struct sigaction previous;

// These are read by the handler, which must not allocate memory. With glibc, the loader then has to
// make room for them when a thread begins. With musl it always does, but refuses to load a library
// that asks for it.
#if defined(__GLIBC__)
#define RECMAP_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) thread_local
#else
#define RECMAP_THREAD_LOCAL thread_local
#endif
RECMAP_THREAD_LOCAL int depth = 0;
RECMAP_THREAD_LOCAL bool passing_on = false;
RECMAP_THREAD_LOCAL uint64_t last_found = 0;

// A range as it was at one moment: another thread may unregister it and use it again.
struct Snapshot {
  MappedRange* range = nullptr;
  uintptr_t begin = 0;
  size_t size = 0;
};

Snapshot snapshot(MappedRange& range) {
  for (;;) {
    const uintptr_t begin = range.begin.load();
    const size_t size = range.size.load();
    // The size changes only while the range is unused.
    if (range.begin.load() == begin) return {&range, begin, size};
  }
}

Snapshot range_at(uintptr_t address) {
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    for (MappedRange& range : block->ranges) {
      const Snapshot found = snapshot(range);
      if (found.begin != 0 && found.begin <= address && address - found.begin < found.size) {
        return found;
      }
    }
  }
  return {};
}

// Replaces all pages from this one on by zeros.
bool replace_pages(const Snapshot& found, uintptr_t address) {
  const uintptr_t from = std::max(address / page_size() * page_size(), found.begin);
  const size_t whole = from - found.begin;
  void* const place = reinterpret_cast<void*>(from);
  if (mmap(place, found.size - whole, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    return false;
  }
  MappedRange& range = *found.range;
  size_t end = range.end.load();
  while (whole < end && !range.end.compare_exchange_weak(end, whole)) {
  }
  last_found = truncations.fetch_add(1) + 1;
  range.truncation.store(last_found);
  return true;
}

bool is_ours(const struct sigaction& action);

void act_by_default(int signal) {
  struct sigaction plain{};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);
}

// Does what would have happened without our handler.
void pass_on(int signal, siginfo_t* info, void* context) {
  // Sent by a process, or by raise(): then nothing is repeated when the handler returns.
  const bool sent = info->si_code <= 0;
  if (sent && previous.sa_handler == SIG_IGN) return;
  if (passing_on || previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    act_by_default(signal);   // an access is repeated, and kills the process
    if (sent) raise(signal);  // delivered as soon as the handler returns
    return;
  }
  passing_on = true;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
  passing_on = false;
  // A handler that raises the signal again, as that of Python's faulthandler does, wants what would
  // have happened without itself. That may be us, who would call it again.
  sigset_t pending;
  struct sigaction now{};
  if (sigpending(&pending) == 0 && sigismember(&pending, signal) == 1 &&
      sigaction(signal, nullptr, &now) == 0 && is_ours(now)) {
    act_by_default(signal);
  }
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Snapshot found;
  if (depth > 0 && info->si_code == BUS_ADRERR) found = range_at(address);
  if (found.range == nullptr || !replace_pages(found, address)) pass_on(signal, info, context);
  errno = before;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_bus_error;
}

// Installs the handler, unless it is installed. Others may have replaced it since.
void install_handler() {
  struct sigaction now{};
  if (sigaction(SIGBUS, nullptr, &now) != 0) return;
  if (is_ours(now)) return;
  previous = now;
  page_size();  // computed now, because the handler may not
  struct sigaction ours{};
  ours.sa_sigaction = &on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

}  // namespace

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

bool is_readable(const uint8_t* page) {
#if defined(__linux__)
  // The kernel reads the 8 bytes before it looks at the first argument, which is invalid, so that
  // nothing else happens.
  return syscall(SYS_rt_sigprocmask, ~0, page, nullptr, size_t{8}) == 0 || errno != EFAULT;
#else
  return static_cast<void>(page), true;
#endif
}

MappedRange* register_range(const void* begin, size_t size, std::string name) {
  static const bool safe_to_fork = [] {
    const auto lock = [] { registry.lock(); };
    const auto unlock = [] { registry.unlock(); };
    return pthread_atfork(lock, unlock, unlock) == 0;
  }();
  static_cast<void>(safe_to_fork);
  const std::lock_guard lock(registry);
  install_handler();
  std::vector<MappedRange*>& unused = unused_ranges();
  if (unused.empty()) {
    static Block* last = nullptr;
    Block* const more = last == nullptr ? &first_block : new Block;
    unused.reserve(Block::kRanges);
    for (MappedRange& range : more->ranges) unused.push_back(&range);
    if (last != nullptr) last->next.store(more);
    last = more;
  }
  MappedRange* const range = unused.back();
  unused.pop_back();
  range->name = std::move(name);
  range->end.store(MappedRange::kWhole);
  range->truncation.store(0);
  range->size.store(size);
  range->begin.store(reinterpret_cast<uintptr_t>(begin));
  return range;
}

void unregister_range(MappedRange* range) {
  const std::lock_guard lock(registry);
  range->begin.store(0);
  unused_ranges().push_back(range);
}

std::vector<TruncatedFile> truncated_files(uint64_t since) {
  const std::lock_guard lock(registry);
  std::vector<TruncatedFile> found;
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    for (MappedRange& range : block->ranges) {
      const auto [_, begin, size] = snapshot(range);
      if (begin == 0) continue;
      const uint64_t number = range.truncation.load();
      // The system itself may have found it, when it was told to write what lies there.
      const size_t last = (size - 1) / page_size() * page_size();
      if (number > since) {
        found.push_back({range.name, size, range.end.load(), number});
      } else if (number == 0 && !is_readable(reinterpret_cast<const uint8_t*>(begin) + last)) {
        found.push_back({range.name, size, last, 0});
      }
    }
  }
  return found;
}

uint64_t truncations_seen() { return truncations.load(); }

TruncationGuard::TruncationGuard() { enter(); }
TruncationGuard::~TruncationGuard() { leave(); }
bool TruncationGuard::active() { return depth > 0; }
void TruncationGuard::enter() { ++depth; }
void TruncationGuard::leave() { --depth; }
uint64_t TruncationGuard::last_found() { return recmap::last_found; }
void TruncationGuard::take_over(uint64_t found) {
  recmap::last_found = std::max(recmap::last_found, found);
}

}  // namespace recmap
