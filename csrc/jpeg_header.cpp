#include "jpeg_header.h"

#include <array>
#include <cstring>
#include <utility>

namespace fastdata {
namespace {

enum Marker : int {
    kTem = 0x01,
    kDht = 0xC4,
    kDac = 0xCC,
    kRst0 = 0xD0,
    kRst7 = 0xD7,
    kSoi = 0xD8,
    kEoi = 0xD9,
    kSos = 0xDA,
    kDqt = 0xDB,
    kDnl = 0xDC,
    kDri = 0xDD,
    kApp0 = 0xE0,
    kApp15 = 0xEF,
    kCom = 0xFE,
};

enum class Kind { kNone, kBaseline, kProgressive, kArithmetic, kArithmeticProgressive, kLossless,
                  kHierarchical };

// The kind of JPEG that a marker announces; kNone where it is no frame header.
Kind frame_kind(int marker) {
    switch (marker) {
        case 0xC0: case 0xC1: return Kind::kBaseline;
        case 0xC2: return Kind::kProgressive;
        case 0xC3: case 0xCB: return Kind::kLossless;
        case 0xC5: case 0xC6: case 0xC7: case 0xCD: case 0xCE: case 0xCF: return Kind::kHierarchical;
        case 0xC9: return Kind::kArithmetic;
        case 0xCA: return Kind::kArithmeticProgressive;
        default: return Kind::kNone;
    }
}

bool is_restart(int marker) { return marker >= kRst0 && marker <= kRst7; }

bool is_skipped(int marker) {
    switch (marker) {
        case kDht: case kDac: case kDqt: case kDnl: case kCom: return true;
        default: return marker >= kApp0 && marker <= kApp15;
    }
}

struct Factors {
    int h = 0;
    int v = 0;
    bool operator==(const Factors &other) const { return h == other.h && v == other.v; }
};

std::string list_factors(const std::array<Factors, 4> &factors, int components) {
    std::string text;
    for (int i = 0; i < components; ++i) {
        text += (i ? "," : "") + std::to_string(factors[i].h) + "x" + std::to_string(factors[i].v);
    }
    return text;
}

std::string name_sampling(const std::array<Factors, 4> &factors, int components) {
    for (int i = 0; i < components; ++i) {
        const auto [h, v] = factors[i];
        if (h < 1 || h > 4 || v < 1 || v > 4) {
            fail("damaged JPEG: sampling factors %dx%d, which must be 1 to 4", h, v);
        }
    }
    if (components == 1) return "4:0:0";
    const Factors luma = factors[0], chroma = factors[1];
    const bool plain =
        factors[2] == chroma && luma.h % chroma.h == 0 && luma.v % chroma.v == 0;
    const bool black_as_luma = components == 3 || factors[3] == luma;
    if (plain && black_as_luma) {
        static constexpr std::array<std::pair<int, const char *>, 7> names{{
            {11, "4:4:4"}, {21, "4:2:2"}, {22, "4:2:0"}, {12, "4:4:0"},
            {41, "4:1:1"}, {42, "4:1:0"}, {14, "4:4:1"},
        }};
        const int ratio = luma.h / chroma.h * 10 + luma.v / chroma.v;
        for (const auto &[key, name] : names) {
            if (key == ratio) return name;
        }
    }
    return list_factors(factors, components);
}

// One pass over the bytes; every read is checked against the end first.
class Walk {
  public:
    Walk(const uint8_t *data, size_t size, const JpegLimits &limits)
        : data_(data), size_(size), limits_(limits) {}

    JpegHeader run() {
        if (size_ < 2 || data_[0] != 0xFF || data_[1] != kSoi) {
            fail("not a JPEG: it does not start with 0xffd8");
        }
        at_ = 2;
        for (int i = 0; i < limits_.max_segments; ++i) {
            const int marker = next_marker();
            if (marker == kTem || is_restart(marker)) continue;
            if (marker == kEoi) {
                if (!header_.scans) fail("damaged JPEG: it ends before its first scan");
                return header_;
            }
            read_segment(marker);
        }
        fail("JPEG with more than %d marker segments, over the limit", limits_.max_segments);
    }

  private:
    [[noreturn]] void truncated() const {
        fail("truncated JPEG: no end-of-image marker in its %zu bytes", size_);
    }

    int u16(size_t at) const { return data_[at] << 8 | data_[at + 1]; }

    // The marker at the current offset, past any padding.
    int next_marker() {
        if (at_ >= size_) truncated();
        if (data_[at_] != 0xFF) {
            fail("damaged JPEG: byte %zu is 0x%02x instead of a marker", at_, data_[at_]);
        }
        while (at_ < size_ && data_[at_] == 0xFF) ++at_;
        if (at_ >= size_) truncated();
        return data_[at_++];
    }

    void read_segment(int marker) {
        if (marker == 0 || marker == kSoi) {
            fail("damaged JPEG: 0xff%02x before byte %zu starts no segment", marker, at_);
        }
        if (size_ - at_ < 2) truncated();
        const size_t length = u16(at_);
        if (length < 2) {
            fail("damaged JPEG: segment 0xff%02x has length %zu, under 2", marker, length);
        }
        if (size_ - at_ < length) truncated();
        const size_t start = at_ + 2;
        at_ += length;
        const Kind kind = frame_kind(marker);
        if (marker == kSos) {
            read_scan(start);
        } else if (marker == kDri) {
            if (at_ - start != 2) {
                fail("damaged JPEG: a restart interval of %zu bytes", at_ - start);
            }
            restart_interval_ = u16(start);
        } else if (kind != Kind::kNone) {
            read_frame(start, kind);
        } else if (!is_skipped(marker)) {
            fail("JPEG with marker 0xff%02x, which is not supported", marker);
        }
    }

    void read_frame(size_t start, Kind kind) {
        if (header_.components) fail("damaged JPEG: it has two frame headers");
        if (kind == Kind::kLossless) fail("lossless JPEG, which is not supported");
        if (kind == Kind::kHierarchical) fail("hierarchical JPEG, which is not supported");
        const size_t bytes = at_ - start;
        if (bytes < 6 || bytes != 6 + size_t{3} * data_[start + 5]) {
            fail("damaged JPEG: a frame header of %zu bytes", bytes);
        }
        const int precision = data_[start], components = data_[start + 5];
        const int height = u16(start + 1), width = u16(start + 3);
        if (precision != 8) {
            fail("JPEG with %d-bit samples; only 8-bit ones are supported", precision);
        }
        if (components != 1 && components != 3 && components != 4) {
            fail("JPEG with %d components; 1, 3 and 4 are supported", components);
        }
        if (height == 0) {
            fail("JPEG with its height after its pixels (DNL), which is not supported");
        }
        check_pixels(width, height);
        std::array<Factors, 4> factors;
        for (int i = 0; i < components; ++i) {
            const int packed = data_[start + 7 + 3 * size_t(i)];
            factors[i] = {packed >> 4, packed & 15};
        }
        header_.sampling = name_sampling(factors, components);
        header_.width = width;
        header_.height = height;
        header_.components = components;
        header_.progressive = kind == Kind::kProgressive || kind == Kind::kArithmeticProgressive;
        header_.arithmetic = kind == Kind::kArithmetic || kind == Kind::kArithmeticProgressive;
    }

    void check_pixels(int width, int height) const {
        if (width < 1) fail("an image of %dx%d pixels holds nothing", width, height);
        if (int64_t{width} * height > limits_.max_pixels) {
            fail("%dx%d pixels, over the limit of %lld", width, height,
                 static_cast<long long>(limits_.max_pixels));
        }
    }

    // Checks a scan's header and passes its entropy-coded data, in which 0xff00 is a data byte,
    // 0xffd0 to 0xffd7 restart it, and a run of 0xff is padding before whatever follows the run.
    void read_scan(size_t start) {
        if (!header_.components) fail("damaged JPEG: a scan comes before the frame header");
        const size_t bytes = at_ - start;
        const int components = bytes ? data_[start] : 0;
        if (components < 1 || components > 4 || bytes != 4 + 2 * size_t(components)) {
            fail("damaged JPEG: a scan header of %zu bytes", bytes);
        }
        if (!header_.scans++) header_.restart_interval = restart_interval_;
        if (header_.scans > limits_.max_scans) {
            fail("JPEG with more than %d scans, over the limit", limits_.max_scans);
        }
        for (;; ++at_) {
            const void *found = at_ < size_ ? std::memchr(data_ + at_, 0xFF, size_ - at_) : nullptr;
            if (!found) truncated();
            at_ = static_cast<size_t>(static_cast<const uint8_t *>(found) - data_);
            if (at_ + 1 >= size_) truncated();
            const int next = data_[at_ + 1];
            if (next != 0 && next != 0xFF && !is_restart(next)) return;
        }
    }

    const uint8_t *data_;
    size_t size_;
    JpegLimits limits_;
    size_t at_ = 0;
    int restart_interval_ = 0;
    JpegHeader header_;
};

}  // namespace

JpegHeader read_jpeg_header(const uint8_t *data, size_t size, const JpegLimits &limits) {
    return Walk(data, size, limits).run();
}

}  // namespace fastdata
