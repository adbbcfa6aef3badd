#pragma once

// What the bodies of all pooling routes have in common. Thread: as ResponseWriter.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "frontend/api/generation_call.h"
#include "frontend/api/pooled_numbers.h"
#include "frontend/api/render.h"

namespace tandem {

// Keeps each input's numbers until all are there.
class PooledWriter : public ResponseWriter {
 public:
  explicit PooledWriter(WriterInput input)
      : ResponseWriter(input.out), input_(std::move(input)), results_(input_.prompts.size()) {}

  void WriteDelta(int index, MessageDelta& delta, const Usage&) override {
    auto numbers = ReadPooled(delta.extras().pooling_output);
    if (numbers.ok()) results_[static_cast<size_t>(index)] = *std::move(numbers);
  }

 protected:
  // {"id":…,"object":"list","created":…,"model":…,"data":[
  void BeginList() {
    std::string head = DumpJson({{"id", input_.head.id},
                                 {"object", "list"},
                                 {"created", input_.head.created},
                                 {"model", input_.head.model}});
    head.back() = ',';
    out_->append(head).append("\"data\":[");
  }
  void EndList(const Usage& usage) {
    out_->append("],\"usage\":").append(DumpJson(UsageJson(usage))).push_back('}');
  }

  const WriterInput input_;
  std::vector<PooledNumbers> results_;
};

}  // namespace tandem
