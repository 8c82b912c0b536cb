// A budget of memory that the threads of a pool share for images that need much of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

namespace fastdata {

// Less than this is not counted, so that ordinary images touch neither lock nor counter.
inline constexpr size_t kSmallDecode = size_t{32} << 20;

// Bytes that may be in use at a time. Whoever asks for more than is left waits until others have
// given theirs back, first come, first served. A request larger than the budget is granted while
// nobody else holds any, since it could never be granted otherwise.
class MemoryBudget {
  public:
    explicit MemoryBudget(size_t total) : total_(total) {}

    // False, and nothing is taken, if `stopped` became true before the bytes were free.
    bool take(size_t size, const std::atomic<bool> &stopped);
    void give(size_t size);

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<const void *> waiting_;
    size_t total_;
    size_t used_ = 0;
};

// A thread's share of a budget, at most one at a time. Without a budget it never waits.
class Lease {
  public:
    explicit Lease(MemoryBudget *budget) : budget_(budget) {}
    ~Lease() { end(); }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    void stop_with(const std::atomic<bool> *stopped) { stopped_ = stopped; }
    // Waits for this much memory, unless it is little or a share was taken already. Throws
    // std::runtime_error if the job is cancelled while it waits.
    void take(size_t size);
    // Whether a share was taken since the last end().
    bool large() const { return size_ > 0; }
    void end();

  private:
    MemoryBudget *budget_;
    const std::atomic<bool> *stopped_ = nullptr;
    size_t size_ = 0;
};

}  // namespace fastdata
