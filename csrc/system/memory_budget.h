// Memory that the threads of a pool share for images that need much of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

namespace fastdata {

// What takes less is not counted: usual images touch neither lock nor counter.
inline constexpr size_t kSmallDecode = size_t{32} << 20;

// Bytes that may be in use at a time. Who asks for more than is left waits, in the order of
// asking, until others gave theirs back; one alone always gets what it asks for, however much.
class MemoryBudget {
  public:
    explicit MemoryBudget(size_t total) : total_(total) {}

    // False, without the bytes, where `stopped` became true before they were free.
    bool take(size_t size, const std::atomic<bool> &stopped);
    void give(size_t size);

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<const void *> waiting_;
    size_t total_;
    size_t used_ = 0;
};

// A thread's part of a budget, at most one at a time. Without a budget nothing waits.
class Lease {
  public:
    explicit Lease(MemoryBudget *budget) : budget_(budget) {}
    ~Lease() { end(); }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    void stop_with(const std::atomic<bool> *stopped) { stopped_ = stopped; }
    // Waits for so much memory if it is not small and no lease was taken yet. Throws
    // std::runtime_error where the job was cancelled meanwhile.
    void take(size_t size);
    // Whether much memory was taken since the last end().
    bool large() const { return size_ > 0; }
    void end();

  private:
    MemoryBudget *budget_;
    const std::atomic<bool> *stopped_ = nullptr;
    size_t size_ = 0;
};

}  // namespace fastdata
