#include "jpeg_coded.h"

#include <cstring>
#include <string>

#include "jpeg_header.h"

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
    for (marker_ = 0; marker_ == 0;) {
        const void *found = std::memchr(data_ + at_, 0xFF, size_ - at_);
        if (!found) throw_corrupt("premature end of the image");
        const auto end = static_cast<size_t>(static_cast<const uint8_t *>(found) - data_);
        size_t after = end + 1;
        while (after < size_ && data_[after] == 0xFF) ++after;
        if (after == size_) throw_corrupt("premature end of the image");
        marker_ = data_[after];
        // Fill bytes stand before markers alone. libjpeg-turbo goes on behind others, but mixes
        // what its fast way had read of that MCU into the image.
        if (marker_ == 0 && after > end + 1) throw_corrupt("fill bytes within the data");
        if (out) {
            const size_t count = end - at_ + (marker_ == 0);  // 0xff00 is a data byte, 0xff
            std::memcpy(out, data_ + at_, count);
            out += count;
        }
        at_ = after + 1;
    }
    const auto number = static_cast<int>(next_++ % 8);
    if (next_ < runs_ && marker_ != 0xD0 + number) throw_corrupt("a restart marker is missing");
    return out;
}

}  // namespace fastdata
