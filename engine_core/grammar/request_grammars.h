#pragma once

// The grammars of requests as the engine uses them: it waits for them, and each step gets the masks
// of its requests. Two implementations: GrammarService, and ReplayedGrammars, which has the results
// of a recorded run. RecordedGrammars lies between engine and service while a run is recorded.
// Thread: engine loop.

#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/grammar/grammar_link.h"
#include "engine_core/grammar/grammar_spec.h"
#include "engine_core/scheduler/grammar_result.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler.h"
#include "engine_core/scheduler/step.h"

namespace tandem {

// A request that has lost its grammar.
struct GrammarFailure {
  RequestId request_id;
  int64_t request_order = 0;
  Status status;              // what ends it, unless
  bool starts_again = false;  // it waits for its grammar once more
};

class RequestGrammars {
 public:
  virtual ~RequestGrammars() = default;

  virtual const GrammarDefaults& defaults() const = 0;
  // Whether a request's constraint has a form that can be compiled.
  Status Check(const wire::StructuredOutputs& outputs) const {
    return MakeGrammarSpec(outputs, defaults()).status();
  }
  // Has the grammar of a waiting request compiled. True: it is there already.
  virtual bool Await(const Request& request) = 0;
  // The requests that waited for a grammar.
  virtual std::vector<GrammarResult> Take(const GrammarCompiled& compiled) = 0;

  // Has the masks made that running requests need for their next tokens, once the tokens before
  // them are known: the sooner, the less the next step waits.
  virtual void Foresee(const Scheduler& scheduler) = 0;
  // Adds the masks of a step that is about to be submitted, and has those made that were not
  // foreseen.
  virtual void BeginMasks(Step* step) = 0;
  // Waits for them. A mask that cannot be made allows everything, and its request is a failure.
  virtual void FinishMasks() = 0;
  virtual std::vector<GrammarFailure> TakeFailures() = 0;
  // Drops the matchers of requests that have ended.
  virtual void DropEnded(const Scheduler& scheduler) = 0;
};

}  // namespace tandem
