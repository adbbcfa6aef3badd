#include "frontend/openai/adapter_request.h"

#include <nlohmann/json.hpp>

#include "frontend/openai/parse_fields.h"

namespace tandem {

StatusOr<LoadAdapterRequest> ParseLoadAdapterRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  LoadAdapterRequest request;
  BodyErrors errors;
  for (const char* name : {"lora_name", "lora_path"}) {
    if (IsAbsent(body, name)) errors.AddForm("body." + std::string(name), "is required");
  }
  ParseFields<LoadAdapterRequest>(body, kLoadAdapterFields, &request, &errors);
  LogUnknownFields(body, kLoadAdapterFields);
  RETURN_IF_ERROR(errors.Result());
  return request;
}

StatusOr<UnloadAdapterRequest> ParseUnloadAdapterRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  UnloadAdapterRequest request;
  BodyErrors errors;
  if (IsAbsent(body, "lora_name")) errors.AddForm("body.lora_name", "is required");
  ParseFields<UnloadAdapterRequest>(body, kUnloadAdapterFields, &request, &errors);
  LogUnknownFields(body, kUnloadAdapterFields);
  RETURN_IF_ERROR(errors.Result());
  return request;
}

}  // namespace tandem
