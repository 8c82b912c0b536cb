#include "jpeg/segments.h"

#include <algorithm>
#include <cstring>

#include "jpeg/error.h"

namespace fastdata {
namespace {

int u16(const uint8_t *at) { return at[0] << 8 | at[1]; }

bool is_restart(int marker) { return marker >= kRst0 && marker <= kRst7; }

// Decoding needs nothing in these segments, so libjpeg does not mind a wrong length either.
bool is_ignored(int marker) {
    return marker == kDnl || marker == kCom || (marker >= kApp0 && marker <= kApp15);
}

bool is_known(int marker) {
    return marker == kSos || marker == kDri || marker == kDht || marker == kDac ||
           marker == kDqt || is_ignored(marker) || is_frame(marker);
}

bool is_lossless(int marker) { return marker == 0xC3 || marker == 0xCB; }

bool is_hierarchical(int marker) {
    return (marker >= 0xC5 && marker <= 0xC7) || (marker >= 0xCD && marker <= 0xCF);
}

void check_pixels(int width, int height, const JpegLimits &limits) {
    if (width < 1) fail("an image of %dx%d pixels holds nothing", width, height);
    if (int64_t{width} * height > limits.max_pixels) {
        fail("%dx%d pixels, over the limit of %lld", width, height,
             static_cast<long long>(limits.max_pixels));
    }
}

// libjpeg-turbo reads the coefficients of images with other factors, but cannot make pixels of
// them.
void check_sampling(const JpegFrame &frame) {
    for (int i = 0; i < frame.components; ++i) {
        const JpegComponent &c = frame.component[i];
        if (frame.max_h % c.h != 0 || frame.max_v % c.v != 0) {
            fail("JPEG with sampling factors %dx%d, which do not divide the %dx%d of others", c.h,
                 c.v, frame.max_h, frame.max_v);
        }
    }
}

}  // namespace

SegmentReader::SegmentReader(const uint8_t *data, size_t size, const JpegLimits &limits)
    : data_(data), size_(size), limits_(limits) {
    if (size < 2 || data[0] != 0xFF || data[1] != kSoi) {
        fail("not a JPEG: it does not start with 0xffd8");
    }
}

// Finds the next marker, which any number of 0xff may precede, and moves at_ past it.
int SegmentReader::next_marker() {
    bool stray = false;
    int marker = 0;
    while (marker == 0) {  // 0xff00 is a stuffed data byte, not a marker
        const void *found = at_ < size_ ? std::memchr(data_ + at_, 0xFF, size_ - at_) : nullptr;
        const size_t from = at_;
        at_ = found ? static_cast<size_t>(static_cast<const uint8_t *>(found) - data_) : size_;
        stray = stray || at_ > from;
        while (at_ < size_ && data_[at_] == 0xFF) ++at_;
        marker = at_ < size_ ? data_[at_++] : int{kCut};
        stray = stray || marker == 0;
    }
    strays_ += stray;
    return marker;
}

Segment SegmentReader::next() {
    int marker;
    do {
        if (++markers_ > limits_.max_segments) {
            fail("JPEG with more than %d marker segments, over the limit", limits_.max_segments);
        }
        marker = next_marker();
    } while (marker == kTem || is_restart(marker));
    if (marker == kCut) return {kCut, size_, size_, size_};
    Segment segment{marker, at_ - 2, at_, at_};
    if (marker == kEoi) return segment;
    if (marker == kSoi) fail("damaged JPEG: it has two start-of-image markers");
    if (!is_known(marker)) fail("JPEG with marker 0xff%02x, which is not supported", marker);
    const Segment cut{kCut, segment.begin, size_, size_};
    if (size_ - at_ < 2) return cut;
    const auto length = static_cast<size_t>(u16(data_ + at_));
    if (length < 2 && !is_ignored(marker)) {
        fail("damaged JPEG: segment 0xff%02x has length %zu, under 2", marker, length);
    }
    segment.body = at_ + 2;
    segment.end = length < 2 ? segment.body : at_ + length;
    if (segment.end > size_) return cut;
    at_ = segment.end;
    return segment;
}

// In coded data 0xff00 is a data byte, 0xffd0 to 0xffd7 are restart markers, and a run of 0xff is
// padding before whatever follows the run.
void SegmentReader::skip_coded_data() {
    for (;; ++at_) {
        const void *found = at_ < size_ ? std::memchr(data_ + at_, 0xFF, size_ - at_) : nullptr;
        at_ = found ? static_cast<size_t>(static_cast<const uint8_t *>(found) - data_) : size_;
        if (at_ + 1 >= size_) return;
        const int next = data_[at_ + 1];
        if (next != 0 && next != 0xFF && !is_restart(next)) return;
    }
}

bool is_frame(int marker) {
    return marker >= 0xC0 && marker <= 0xCF && marker != kDht && marker != 0xC8 && marker != kDac;
}

void read_frame(const uint8_t *data, const Segment &segment, const JpegLimits &limits,
                JpegFrame &frame) {
    const int marker = segment.marker;
    if (frame.components) fail("damaged JPEG: it has two frame headers");
    if (is_lossless(marker)) fail("lossless JPEG, which is not supported");
    if (is_hierarchical(marker)) fail("hierarchical JPEG, which is not supported");
    const uint8_t *body = data + segment.body;
    if (segment.bytes() < 6 || segment.bytes() != 6 + size_t{3} * body[5]) {
        fail("damaged JPEG: a frame header of %zu bytes", segment.bytes());
    }
    const int precision = body[0], components = body[5];
    if (precision != 8) {
        fail("JPEG with %d-bit samples; only 8-bit ones are supported", precision);
    }
    if (components != 1 && components != 3 && components != 4) {
        fail("JPEG with %d components; 1, 3 and 4 are supported", components);
    }
    frame.height = u16(body + 1);
    frame.width = u16(body + 3);
    if (frame.height == 0) {
        fail("JPEG with its height after its pixels (DNL), which is not supported");
    }
    check_pixels(frame.width, frame.height, limits);
    for (int i = 0; i < components; ++i) {
        const uint8_t *field = body + 6 + 3 * i;
        JpegComponent &c = frame.component[i];
        c = {field[0], field[1] >> 4, field[1] & 15, field[2]};
        if (c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4) {
            fail("damaged JPEG: sampling factors %dx%d, which must be 1 to 4", c.h, c.v);
        }
        frame.max_h = std::max(frame.max_h, c.h);
        frame.max_v = std::max(frame.max_v, c.v);
    }
    frame.components = components;
    check_sampling(frame);
    frame.progressive = marker == 0xC2 || marker == 0xCA;
    frame.arithmetic = marker == 0xC9 || marker == 0xCA;
}

int read_scan_components(const uint8_t *data, const Segment &segment, const JpegFrame &frame) {
    if (!frame.components) fail("damaged JPEG: a scan comes before the frame header");
    const int components = segment.bytes() ? data[segment.body] : 0;
    if (components < 1 || components > 4 || segment.bytes() != 4 + size_t{2} * components) {
        fail("damaged JPEG: a scan header of %zu bytes", segment.bytes());
    }
    return components;
}

int read_restart_interval(const uint8_t *data, const Segment &segment) {
    if (segment.bytes() != 2) {
        fail("damaged JPEG: a restart interval of %zu bytes", segment.bytes());
    }
    return u16(data + segment.body);
}

}  // namespace fastdata
