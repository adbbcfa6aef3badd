#pragma once

// Reads the events of a /v1/responses stream and checks what every stream keeps to. Uses Catch2's
// REQUIRE: call it from a test. Thread: one.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct ResponseEvent {
  std::string type;
  nlohmann::json data;
};

// The events; their names, types and sequence numbers agree.
std::vector<ResponseEvent> ReadResponseEvents(std::string_view stream);

// Puts a whole stream together from its parts: the output items by their events alone. They are
// those of the last event's response, which is returned.
nlohmann::json AssembleResponse(const std::vector<ResponseEvent>& events);

}  // namespace tandem
