#include "base/memory_budget.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace fastdata {
namespace {

// How often a waiting thread looks whether its job was cancelled: cancelling notifies no budget.
constexpr std::chrono::milliseconds kLook{100};
const std::atomic<bool> kNever{false};

}  // namespace

bool MemoryBudget::take(size_t size, const std::atomic<bool> &stopped) {
    std::unique_lock<std::mutex> lock(mutex_);
    waiting_.push_back(&lock);
    const auto mine = [&] {
        return waiting_.front() == &lock &&
               (used_ == 0 || (size <= total_ && used_ <= total_ - size));
    };
    while (!mine() && !stopped) changed_.wait_for(lock, kLook);
    const bool taken = mine();
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &lock));
    if (taken) used_ += size;
    changed_.notify_all();  // the next one's turn
    return taken;
}

void MemoryBudget::give(size_t size) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        used_ -= size;
    }
    changed_.notify_all();
}

void Lease::take(size_t size) {
    if (size < kSmallDecode || size_ > 0) return;
    if (budget_ && !budget_->take(size, stopped_ ? *stopped_ : kNever)) {
        throw std::runtime_error("the batch was cancelled");
    }
    size_ = size;
}

void Lease::end() {
    if (size_ > 0 && budget_) budget_->give(size_);
    size_ = 0;
}

}  // namespace fastdata
