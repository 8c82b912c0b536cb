// Threads that work on jobs row by row, with a result for each row.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "files/byte_source.h"
#include "jpeg/decode.h"
#include "system/memory_budget.h"
#include "resize/resize.h"

namespace fastdata {

class ChecksumError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// What a thread keeps from row to row.
struct Worker {
    Worker(const JpegLimits &jpeg_limits, JpegWay jpeg_way, MemoryBudget *budget)
        : limits(jpeg_limits), way(jpeg_way), lease(budget), decoder(jpeg_limits), buffer(lease) {}

    // Ends a row: memory that was large goes back to the system, and to the budget.
    void end_row();

    JpegLimits limits;
    JpegWay way;
    Lease lease;
    JpegDecoder decoder;
    ReadBuffer buffer;
    ResizeScratch scratch;
};

// Python's names for these are in fastdata/native.py, in the same order.
enum class RowError : int { kRead, kChecksum, kDecode, kOther };

struct RowFailure {
    RowError kind;
    std::string message;
};

// A number of rows that any thread may work on. They are taken in order. Unless a job keeps going,
// no further row is taken after a failure: those before it were taken already, so the first failure
// is always found.
class Job {
  public:
    Job(size_t rows, bool keep_going) : end_(rows), keep_going_(keep_going) {}
    virtual ~Job() = default;
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    // Takes no further row. Those under way are finished.
    void cancel();

    // Waits until no thread touches the job any more; false if that takes longer.
    bool wait(double seconds);

    // Every failure that was met, by row; valid after wait() was true.
    const std::map<size_t, RowFailure> &failures() const { return failures_; }

  private:
    friend class WorkerPool;

    // Does one row; called by many threads at once, each with its own worker, whose lease ends
    // with the row.
    virtual void work(Worker &worker, size_t row) = 0;

    void run(Worker &worker);
    void fail(size_t row, RowError kind, const char *message);
    bool finished() const { return next_ >= end_ && busy_ == 0; }

    std::mutex mutex_;
    std::condition_variable idle_;
    size_t next_ = 0;
    size_t end_;
    size_t busy_ = 0;
    bool keep_going_;
    std::atomic<bool> cancelled_{false};
    std::map<size_t, RowFailure> failures_;
};

class NoThreadError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

class WorkerPool {
  public:
    // Starts as many threads as the system allows, if not all. Images that need much memory share
    // `memory` bytes of it. Throws NoThreadError where it allows none.
    WorkerPool(int threads, const JpegLimits &limits, size_t memory,
               JpegWay way = JpegWay::kFastest);
    // Cancels what is under way and joins the threads.
    ~WorkerPool();
    WorkerPool(const WorkerPool &) = delete;
    WorkerPool &operator=(const WorkerPool &) = delete;

    // Jobs are worked on in the order of submission; a thread that finds no row left in one goes
    // on with the next.
    void submit(std::shared_ptr<Job> job);

    size_t threads() const { return threads_.size(); }

  private:
    void run(Worker &worker);

    MemoryBudget budget_;
    std::mutex mutex_;
    std::condition_variable work_;
    std::deque<std::shared_ptr<Job>> queue_;
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace fastdata
