#include "jpeg_layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fastdata {
namespace {

class LayoutReader {
  public:
    LayoutReader(const uint8_t *data, size_t size, const JpegLimits &limits, JpegLayout &layout)
        : data_(data), size_(size), limits_(limits), layout_(layout) {}

    void run() {
        if (size_ < 2 || data_[0] != 0xFF || data_[1] != 0xD8) {
            fail("not a JPEG: it does not start with 0xffd8");
        }
        keep(0, 2);
        at_ = 2;
        for (int i = 0; i < limits_.max_segments; ++i) {
            if (read_segment()) return;
        }
        fail("JPEG with more than %d marker segments, over the limit", limits_.max_segments);
    }

  private:
    [[noreturn]] void truncated() const {
        fail("truncated JPEG: it ends in its headers, at byte %zu", size_);
    }

    int u16(size_t at) const { return data_[at] << 8 | data_[at + 1]; }

    // Neighbours become one range, so that copying them is one call.
    void keep(size_t begin, size_t end) {
        auto &needed = layout_.needed;
        if (!needed.empty() && needed.back().end == begin) {
            needed.back().end = end;
        } else {
            needed.push_back({begin, end});
        }
    }

    // Returns true after the scan's header.
    bool read_segment() {
        if (at_ >= size_) truncated();
        if (data_[at_] != 0xFF) {
            fail("damaged JPEG: byte %zu is 0x%02x instead of a marker", at_, data_[at_]);
        }
        while (at_ < size_ && data_[at_] == 0xFF) ++at_;
        if (at_ >= size_) truncated();
        const size_t first = at_ - 1;
        const int marker = data_[at_++];
        if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) return false;
        if (marker == 0xD9) fail("damaged JPEG: it ends before its first scan");
        if (size_ - at_ < 2) truncated();
        const size_t length = u16(at_);
        if (length < 2) fail("damaged JPEG: segment 0xff%02x has length %zu", marker, length);
        if (size_ - at_ < length) truncated();
        const size_t body = at_ + 2;
        at_ += length;
        if (read_body(marker, body)) keep(first, at_);
        if (marker == 0xDA) layout_.coded = at_;
        return marker == 0xDA;
    }

    // Returns whether the pixels depend on the segment.
    bool read_body(int marker, size_t body) {
        const size_t bytes = at_ - body;
        switch (marker) {
            case 0xC0: case 0xC1: case 0xC2: case 0xC9: case 0xCA:
                read_frame(marker, body);
                return true;
            case 0xC4: note_huffman(body); return true;
            case 0xCC: return true;
            case 0xDB: note_quantisation(body); return true;
            case 0xDD:
                if (bytes != 2) fail("damaged JPEG: a restart interval of %zu bytes", bytes);
                layout_.restart_interval = u16(body);
                return true;
            case 0xDA: read_scan(body); return true;
            case 0xE0: return bytes >= 14 && std::memcmp(data_ + body, "JFIF", 5) == 0;
            case 0xEE: return bytes >= 12 && std::memcmp(data_ + body, "Adobe", 5) == 0;
            case 0xDC: case 0xFE: return false;
            default:
                if (marker >= 0xE0 && marker <= 0xEF) return false;
                fail("JPEG with marker 0xff%02x, which is not supported", marker);
        }
    }

    void read_frame(int marker, size_t body) {
        if (layout_.components) fail("damaged JPEG: it has two frame headers");
        const size_t bytes = at_ - body;
        if (bytes < 6 || bytes != 6 + size_t{3} * data_[body + 5]) {
            fail("damaged JPEG: a frame header of %zu bytes", bytes);
        }
        const int precision = data_[body], components = data_[body + 5];
        if (precision != 8) {
            fail("JPEG with %d-bit samples; only 8-bit ones are supported", precision);
        }
        if (components != 1 && components != 3 && components != 4) {
            fail("JPEG with %d components; 1, 3 and 4 are supported", components);
        }
        layout_.size_field = body + 1;
        layout_.height = u16(body + 1);
        layout_.width = u16(body + 3);
        layout_.components = components;
        layout_.sequential = marker == 0xC0 || marker == 0xC1;
        check_pixels();
        int max_h = 1, max_v = 1;
        for (int i = 0; i < components; ++i) {
            const uint8_t *field = data_ + body + 6 + 3 * i;
            JpegComponent &c = layout_.component[i];
            c = {field[0], field[1] >> 4, field[1] & 15, field[2]};
            if (c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4) {
                fail("damaged JPEG: sampling factors %dx%d, which must be 1 to 4", c.h, c.v);
            }
            max_h = std::max(max_h, c.h);
            max_v = std::max(max_v, c.v);
        }
        // A scan of one component has one block an MCU, whatever its sampling factors.
        layout_.mcu_width = components == 1 ? 8 : 8 * max_h;
        layout_.mcu_height = components == 1 ? 8 : 8 * max_v;
        layout_.mcus_per_row = ceil_div(layout_.width, layout_.mcu_width);
        layout_.mcu_rows = ceil_div(layout_.height, layout_.mcu_height);
    }

    void check_pixels() const {
        if (layout_.width < 1 || layout_.height < 1) {
            fail("an image of %dx%d pixels holds nothing", layout_.width, layout_.height);
        }
        if (int64_t{layout_.width} * layout_.height > limits_.max_pixels) {
            fail("%dx%d pixels, over the limit of %lld", layout_.width, layout_.height,
                 static_cast<long long>(limits_.max_pixels));
        }
    }

    // Both note only which tables there are; libjpeg checks what they hold.
    void note_huffman(size_t at) {
        while (at_ - at >= 17) {
            const int index = data_[at];
            size_t symbols = 0;
            for (int i = 1; i <= 16; ++i) symbols += data_[at + i];
            if (index < 32) huffman_ |= 1u << index;
            at += 17 + std::min(symbols, at_ - at - 17);
        }
    }

    void note_quantisation(size_t at) {
        while (at < at_) {
            const int index = data_[at] & 15;
            const size_t bytes = data_[at] >> 4 ? 129 : 65;
            quantisation_ |= 1u << index;
            at += std::min(bytes, at_ - at);
        }
    }

    void read_scan(size_t body) {
        if (!layout_.components) fail("damaged JPEG: a scan comes before the frame header");
        const size_t bytes = at_ - body;
        const int count = bytes ? data_[body] : 0;
        if (count < 1 || count > 4 || bytes != 4 + 2 * size_t(count)) {
            fail("damaged JPEG: a scan header of %zu bytes", bytes);
        }
        layout_.one_scan = layout_.sequential && count == layout_.components;
        layout_.own_tables = layout_.one_scan;
        for (int i = 0; i < count; ++i) {
            const int tables = data_[body + 2 + 2 * i];
            const uint32_t used = 1u << ((tables >> 4) & 15) | 1u << (16 + (tables & 15));
            const int scale = layout_.component[i].table;
            const bool scaled = scale < 4 && (quantisation_ >> scale & 1u);
            if ((huffman_ & used) != used || !scaled) layout_.own_tables = false;
        }
    }

    const uint8_t *data_;
    size_t size_;
    JpegLimits limits_;
    JpegLayout &layout_;
    size_t at_ = 0;
    uint32_t huffman_ = 0;       // DC tables in the low half, AC in the high half
    uint32_t quantisation_ = 0;
};

}  // namespace

void read_jpeg_layout(const uint8_t *data, size_t size, const JpegLimits &limits,
                      JpegLayout &layout) {
    std::vector<ByteRange> needed = std::move(layout.needed);
    needed.clear();
    layout = JpegLayout();
    layout.needed = std::move(needed);
    LayoutReader(data, size, limits, layout).run();
}

}  // namespace fastdata
