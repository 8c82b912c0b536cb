#include "jpeg/coded.h"

#include <cstring>
#include <string>

#include "jpeg/segments.h"

namespace fastdata {

void throw_corrupt(const char *what) {
    throw DecodeError(std::string("Corrupt JPEG data: ") + what);
}

void CodedRuns::start(const uint8_t *data, size_t size, size_t at, int64_t runs) {
    data_ = data;
    size_ = size;
    at_ = at;
    next_ = 0;
    runs_ = runs;
}

uint8_t *CodedRuns::pass(uint8_t *out) {
    bool readable = true;
    for (marker_ = 0; marker_ == 0;) {
        const void *found = std::memchr(data_ + at_, 0xFF, size_ - at_);
        const size_t end =
            found ? static_cast<size_t>(static_cast<const uint8_t *>(found) - data_) : size_;
        size_t after = end;
        while (after < size_ && data_[after] == 0xFF) ++after;
        const bool cut = after == size_;
        if (cut && next_ + 1 < runs_) throw_corrupt("premature end of the image");
        marker_ = cut ? int{kCut} : data_[after];
        const bool stuffing = marker_ == 0 && after == end + 1;  // 0xff00 is a data byte, 0xff
        if (out && readable) {
            const size_t count = end - at_ + stuffing;
            std::memcpy(out, data_ + at_, count);
            out += count;
        }
        // Fill bytes stand before markers alone. libjpeg-turbo goes on behind others, but mixes what
        // its fast way had read of that MCU into the image. So what comes after them is no data.
        readable = readable && (marker_ != 0 || stuffing);
        at_ = cut ? size_ : after + 1;
    }
    const auto number = static_cast<int>(next_++ % 8);
    if (next_ < runs_ && marker_ != kRst0 + number) throw_corrupt("a restart marker is missing");
    return out;
}

}  // namespace fastdata
