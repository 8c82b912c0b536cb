#include "pool/worker_pool.h"

#include <algorithm>
#include <chrono>
#include <new>

namespace fastdata {

void Worker::end_row() {
    if (!lease.large()) return;  // ordinary buffers serve the next row
    decoder.free();
    buffer.free();
    scratch = {};
    lease.end();
}

void BatchJob::cancel() {
    std::lock_guard<std::mutex> lock(mutex_);
    end_ = std::min(end_, next_);
    cancelled_ = true;
    if (finished()) idle_.notify_all();
}

bool BatchJob::wait(double seconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (seconds <= 0) return finished();  // even a wait of no time costs 50 us in the kernel
    return idle_.wait_for(lock, std::chrono::duration<double>(seconds),
                          [this] { return finished(); });
}

void BatchJob::run(Worker &worker) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (next_ < end_) {
        const size_t row = next_++;
        ++busy_;
        lock.unlock();
        worker.lease.stop_with(&cancelled_);
        try {
            const RowEnd end(worker);
            work(worker, row);
        } catch (const ReadError &error) {
            fail(row, RowError::kRead, error.what());
        } catch (const ChecksumError &error) {
            fail(row, RowError::kChecksum, error.what());
        } catch (const DecodeError &error) {
            fail(row, RowError::kDecode, error.what());
        } catch (const std::bad_alloc &) {  // this sample's fault: others may need less
            fail(row, RowError::kDecode, "there is no memory to decode it");
        } catch (const std::exception &error) {
            fail(row, RowError::kOther, error.what());
        }
        lock.lock();
        --busy_;
    }
    if (finished()) idle_.notify_all();
}

void BatchJob::fail(size_t row, RowError kind, const char *message) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!keep_going_) end_ = std::min(end_, next_);  // so that no further row is started
    failures_[row] = {kind, message};
}

WorkerPool::WorkerPool(int threads, const JpegLimits &limits, size_t memory, JpegWay way)
    : budget_(memory) {
    const auto wanted = static_cast<size_t>(threads);
    threads_.reserve(wanted);
    while (threads_.size() < wanted) {
        try {
            // Made here, because an exception in a thread would end the process.
            auto worker = std::make_unique<Worker>(limits, way, &budget_);
            threads_.emplace_back([this, worker = std::move(worker)] { run(*worker); });
        } catch (const std::exception &error) {
            if (threads_.empty()) throw NoThreadError(error.what());
            return;
        }
    }
}

WorkerPool::~WorkerPool() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
        for (auto &job : queue_) job->cancel();
    }
    work_.notify_all();
    for (auto &thread : threads_) thread.join();
}

void WorkerPool::submit(std::shared_ptr<BatchJob> job) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(std::move(job));
    }
    work_.notify_all();
}

void WorkerPool::run(Worker &worker) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        work_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (stop_) return;
        std::shared_ptr<BatchJob> job = queue_.front();
        lock.unlock();
        job->run(worker);
        lock.lock();
        // It stays in front until a thread finds no row left to start, so that all threads share
        // it; the first of them to come back removes it.
        if (!queue_.empty() && queue_.front() == job) queue_.pop_front();
    }
}

}  // namespace fastdata
