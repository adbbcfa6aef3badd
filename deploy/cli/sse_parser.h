#pragma once

// Splits a stream of bytes into the data of server-sent events, however it was cut. Lines end
// in LF, CRLF or CR; comments and fields other than data are ignored; the data lines of one
// event are joined by LF. Thread: one. Owns the bytes of an unfinished event; allocates nothing
// once its buffers have grown.

#include <functional>
#include <string>
#include <string_view>

namespace tandem {

class SseParser {
 public:
  // Calls on_event for each event completed by `bytes`, "[DONE]" excepted; the view is valid during
  // the call. False at "[DONE]", or when on_event returns false; the rest is then not read.
  bool Feed(std::string_view bytes, const std::function<bool(std::string_view data)>& on_event);

 private:
  bool TakeLine(std::string_view line, const std::function<bool(std::string_view data)>& on_event);

  std::string line_;  // the beginning of a line whose end has not arrived
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;  // a LF as the next byte belongs to the previous line end
};

}  // namespace tandem
