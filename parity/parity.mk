# Parity with the Python agent, on the lab's real servers; see docs/explanation/parity.md.
# SCENARIO is a regular expression on the names of scenarios or configurations.
SCENARIO ?=
PARITY_TIMEOUT ?= 120m
# RECORDINGS is another directory (an absolute path) than parity/testdata.
RECORDINGS ?=
PARITY = SCENARIO='$(SCENARIO)' RECORDINGS='$(RECORDINGS)' CGO_ENABLED=1 $(GO) test -race -count 1 -timeout $(PARITY_TIMEOUT) -tags parity -v

.PHONY: parity parity-fast parity-record parity-repeat

parity: build ## play all scenarios with the Python agent and with Patchbay, compare (root; SCENARIO=regexp; RECORD=1 writes parity/testdata)
	$(PARITY) -run 'TestScenariosAreDescribed|TestParity$$' ./parity/live/

parity-fast: build ## play with Patchbay only, compare with the recordings (root; SCENARIO=regexp)
	$(PARITY) -run 'TestAgainstRecordings$$' ./parity/live/

parity-record: ## play with the Python agent and write parity/testdata (root; SCENARIO=regexp)
	RECORD=1 $(PARITY) -run 'TestScenariosAreDescribed|TestRecord$$' ./parity/live/

parity-repeat: ## play with the Python agent and compare with its recordings: what is noise? (root; SCENARIO=regexp)
	$(PARITY) -run 'TestPythonAgainstRecordings$$' ./parity/live/
