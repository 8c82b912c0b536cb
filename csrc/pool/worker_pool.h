// Threads that work on batches row by row, and keep an error for each row that fails.
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

#include "base/memory_budget.h"
#include "files/byte_source.h"
#include "jpeg/decode.h"
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

    // Call after each row: returns memory that was large to the system and to the budget.
    void end_row();

    JpegLimits limits;
    JpegWay way;
    Lease lease;
    JpegDecoder decoder;
    ReadBuffer buffer;
    ResizeScratch scratch;
};

// Ends a worker's row, also after an error.
class RowEnd {
  public:
    explicit RowEnd(Worker &worker) : worker_(worker) {}
    ~RowEnd() { worker_.end_row(); }
    RowEnd(const RowEnd &) = delete;
    RowEnd &operator=(const RowEnd &) = delete;

  private:
    Worker &worker_;
};

// fastdata's Python side has a list of exceptions for these, in the same order.
enum class RowError : int { kRead, kChecksum, kDecode, kOther };

struct RowFailure {
    RowError kind;
    std::string message;
};

// The rows of a batch, which any thread may work on. They are started in order. Unless a job keeps
// going, no row is started after a failure; all rows before it were started already, so the first
// failure of the batch is always found.
class BatchJob {
  public:
    BatchJob(size_t rows, bool keep_going) : end_(rows), keep_going_(keep_going) {}
    virtual ~BatchJob() = default;
    BatchJob(const BatchJob &) = delete;
    BatchJob &operator=(const BatchJob &) = delete;

    // Starts no further row. Those under way are finished.
    void cancel();

    // Waits until no thread touches the job any more; false if that takes longer.
    bool wait(double seconds);

    // All failures, by row; valid once wait() was true.
    const std::map<size_t, RowFailure> &failures() const { return failures_; }

  private:
    friend class WorkerPool;

    // Does one row. Many threads call it at once, each with its own worker.
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
    // Starts as many of the threads as the system allows. Images that need much memory share
    // `memory` bytes of it. Throws NoThreadError if the system allows none.
    WorkerPool(int threads, const JpegLimits &limits, size_t memory,
               JpegWay way = JpegWay::kFastest);
    // Cancels what is under way and joins the threads.
    ~WorkerPool();
    WorkerPool(const WorkerPool &) = delete;
    WorkerPool &operator=(const WorkerPool &) = delete;

    // Jobs are worked on in the order of submission; a thread that finds no row left to start in
    // one begins with the next.
    void submit(std::shared_ptr<BatchJob> job);

    size_t threads() const { return threads_.size(); }

  private:
    void run(Worker &worker);

    MemoryBudget budget_;
    std::mutex mutex_;
    std::condition_variable work_;
    std::deque<std::shared_ptr<BatchJob>> queue_;
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace fastdata
