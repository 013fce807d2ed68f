#include "thread_pool.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>

#include <cstring>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "start_thread.h"

namespace recmap {
namespace {

// How long a thread waits before it sleeps, if there are at least so many helpers: with few CPUs,
// another thread could use the time.
constexpr std::chrono::microseconds kSpinning{50};
constexpr size_t kMinSpinning = 3;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One call of run_with_helpers(). Lives on the stack of its caller.
struct Job {
  void (*run)(void*);
  void* argument;
  size_t wanted;                   // helpers that have not joined yet
  std::atomic<size_t> running{0};  // helpers that have
  Job* next = nullptr;
  std::condition_variable left{};  // the last helper has left
};

class ThreadPool {
 public:
  void run_job(size_t helpers, void (*run)(void*), void* argument) {
    Job job{.run = run, .argument = argument, .wanted = helpers};
    {
      const std::lock_guard lock(mutex_);
      start_threads(helpers);
      if (callers_++ == 0) follow_affinity();
      if (!threads_.empty()) append(job);
    }
    wake(helpers);
    run(argument);
    std::unique_lock lock(mutex_);
    remove(job);
    const auto done = [&] { return job.running.load(std::memory_order_relaxed) == 0; };
    // With the lock again at the end, so that the last helper is done with the job.
    spin(lock, done);
    job.left.wait(lock, done);
    --callers_;
  }

 private:
  static void* help(void* pool) {
    static_cast<ThreadPool*>(pool)->help_with_jobs();
    return nullptr;
  }

  [[noreturn]] void help_with_jobs() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (first_ == nullptr) await_job(lock);
      Job& job = *first_;
      // The next helper joins another job, if there is one.
      remove(job);
      if (--job.wanted != 0) append(job);
      ++job.running;
      const size_t wanted = first_ == nullptr ? 0 : first_->wanted;
      lock.unlock();
      wake(wanted);
      job.run(job.argument);
      lock.lock();
      if (--job.running == 0) job.left.notify_one();
    }
  }

  // Wakes two helpers. Each that joins wakes two more, because waking all takes one thread longer
  // than many jobs take.
  void wake(size_t wanted) {
    for (size_t i = 0; i < std::min<size_t>(wanted, 2); ++i) wake_.notify_one();
  }

  // A job often follows the last within microseconds.
  void await_job(std::unique_lock<std::mutex>& lock) {
    spin(lock, [this] { return jobs_.load(std::memory_order_relaxed) != 0; });
    wake_.wait(lock, [this] { return first_ != nullptr; });
  }

  // Waits a moment without sleeping: waking up often takes longer than the wait.
  template <typename Done>
  void spin(std::unique_lock<std::mutex>& lock, Done&& done) {
    if (threads_.size() < kMinSpinning) return;
    lock.unlock();
    const auto until = std::chrono::steady_clock::now() + kSpinning;
    while (!done() && std::chrono::steady_clock::now() < until) pause();
    lock.lock();
  }

  void append(Job& job) {
    job.next = nullptr;
    Job** end = &first_;
    while (*end != nullptr) end = &(*end)->next;
    *end = &job;
    jobs_.fetch_add(1, std::memory_order_relaxed);
  }

  void remove(Job& job) {
    for (Job** at = &first_; *at != nullptr; at = &(*at)->next) {
      if (*at != &job) continue;
      *at = job.next;
      jobs_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
  }

  void start_threads(size_t count) {
    if (threads_.size() >= count) return;
    threads_.reserve(count);
    while (threads_.size() < count) {
      pthread_t thread;
      if (!start_thread(&help, this, thread)) return;
      threads_.push_back(thread);
    }
  }

  // Lets the helpers run where their caller may run, unless they help others: a program may have
  // been given other CPUs since they started.
  void follow_affinity() {
#if defined(__linux__)
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0) return;
    if (placed_ == threads_.size() && CPU_EQUAL(&own, &cpus_)) return;
    cpus_ = own;
    placed_ = threads_.size();
    for (const pthread_t thread : threads_) pthread_setaffinity_np(thread, sizeof own, &own);
#endif
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  Job* first_ = nullptr;
  std::atomic<int> jobs_{0};  // how many are in the list
  size_t callers_ = 0;
  std::vector<pthread_t> threads_;
#if defined(__linux__)
  cpu_set_t cpus_{};
  size_t placed_ = 0;  // threads that run on these CPUs
#endif
};

// Never destroyed, because its threads use it until the process ends. A forked child has no
// threads but its own, and leaves the pool of its parent as it was.
ThreadPool*& pool() {
  static ThreadPool* current = [] {
    pthread_atfork(nullptr, nullptr, [] { pool() = new ThreadPool; });
    return new ThreadPool;
  }();
  return current;
}

}  // namespace

void prepare_helpers() { pool(); }

void run_with_helpers(size_t helpers, void (*run)(void*), void* argument) {
  if (helpers == 0) return run(argument);
  pool()->run_job(helpers, run, argument);
}

}  // namespace recmap
