#include "truncation_guard.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <unistd.h>

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

// Read by the handler, so the loader must have made room for them when the thread began.
__attribute__((tls_model("initial-exec"))) thread_local int depth = 0;
__attribute__((tls_model("initial-exec"))) thread_local bool passing_on = false;

MappedRange* range_at(uintptr_t address) {
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    for (MappedRange& range : block->ranges) {
      const uintptr_t begin = range.begin.load();
      if (begin != 0 && begin <= address && address - begin < range.size.load()) return &range;
    }
  }
  return nullptr;
}

// Replaces all pages from this one on by zeros.
bool replace_pages(MappedRange& range, uintptr_t address) {
  const uintptr_t from = address / page_size() * page_size();
  const uintptr_t begin = range.begin.load();
  const size_t size = begin + range.size.load() - from;
  void* const place = reinterpret_cast<void*>(from);
  if (mmap(place, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return false;
  }
  size_t end = range.end.load();
  while (from - begin < end && !range.end.compare_exchange_weak(end, from - begin)) {
  }
  range.truncation.store(truncations.fetch_add(1) + 1);
  return true;
}

// Does what would have happened without our handler.
void pass_on(int signal, siginfo_t* info, void* context) {
  if (passing_on || previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    sigaction(signal, &plain, nullptr);  // the access is then repeated, and kills the process
    return;
  }
  passing_on = true;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
  passing_on = false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  MappedRange* range = nullptr;
  if (depth > 0 && info->si_code == BUS_ADRERR) {
    range = range_at(reinterpret_cast<uintptr_t>(info->si_addr));
  }
  if (range == nullptr || !replace_pages(*range, reinterpret_cast<uintptr_t>(info->si_addr))) {
    pass_on(signal, info, context);
  }
  errno = before;
}

// Installs the handler, unless it is installed. Others may have replaced it since.
void install_handler() {
  struct sigaction now{};
  if (sigaction(SIGBUS, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &on_bus_error) return;
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

std::optional<TruncatedFile> truncated_file(uint64_t since) {
  const std::lock_guard lock(registry);
  std::optional<TruncatedFile> found;
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    for (const MappedRange& range : block->ranges) {
      const uintptr_t begin = range.begin.load();
      if (begin == 0) continue;
      const size_t size = range.size.load();
      const uint64_t truncation = range.truncation.load();
      if (truncation > since) {
        since = truncation;
        found = TruncatedFile{range.name, size, range.end.load()};
      }
      // The system itself may have found it, when it was told to write what lies there.
      const size_t last = (size - 1) / page_size() * page_size();
      if (!found && truncation == 0 &&
          !is_readable(reinterpret_cast<const uint8_t*>(begin) + last)) {
        found = TruncatedFile{range.name, size, last};
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

}  // namespace recmap
