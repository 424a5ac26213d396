// SPDX-License-Identifier: Apache-2.0

package openflow

// errorName returns the name that Open vSwitch gives to a standard error, or
// "".
func errorName(typ, code uint16) string {
	if int(typ) < len(standardErrors) && int(code) < len(standardErrors[typ]) {
		return standardErrors[typ][code]
	}
	return ""
}

// standardErrors are the names of the errors by type and code.
var standardErrors = [...][]string{
	0: {
		"OFPHFC_INCOMPATIBLE",
		"OFPHFC_EPERM",
	},
	1: {
		"OFPBRC_BAD_VERSION",
		"OFPBRC_BAD_TYPE",
		"OFPBRC_BAD_STAT",
		"OFPBRC_BAD_VENDOR",
		"OFPBRC_BAD_SUBTYPE",
		"OFPBRC_EPERM",
		"OFPBRC_BAD_LEN",
		"OFPBRC_BUFFER_EMPTY",
		"OFPBRC_BUFFER_UNKNOWN",
		"OFPBRC_BAD_TABLE_ID",
		"OFPBRC_IS_SECONDARY",
		"OFPBRC_BAD_PORT",
		"OFPBRC_BAD_PACKET",
		"OFPBRC_MULTIPART_BUFFER_OVERFLOW",
		"OFPBRC_MULTIPART_REQUEST_TIMEOUT",
		"OFPBRC_MULTIPART_REPLY_TIMEOUT",
	},
	2: {
		"OFPBAC_BAD_TYPE",
		"OFPBAC_BAD_LEN",
		"OFPBAC_BAD_VENDOR",
		"OFPBAC_BAD_VENDOR_TYPE",
		"OFPBAC_BAD_OUT_PORT",
		"OFPBAC_BAD_ARGUMENT",
		"OFPBAC_EPERM",
		"OFPBAC_TOO_MANY",
		"OFPBAC_BAD_QUEUE",
		"OFPBAC_BAD_OUT_GROUP",
		"OFPBAC_MATCH_INCONSISTENT",
		"OFPBAC_UNSUPPORTED_ORDER",
		"OFPBAC_BAD_TAG",
		"OFPBAC_BAD_SET_TYPE",
		"OFPBAC_BAD_SET_LEN",
		"OFPBAC_BAD_SET_ARGUMENT",
	},
	3: {
		"OFPBIC_UNKNOWN_INST",
		"OFPBIC_UNSUP_INST",
		"OFPBIC_BAD_TABLE_ID",
		"OFPBIC_UNSUP_METADATA",
		"OFPBIC_UNSUP_METADATA_MASK",
		"OFPBIC_BAD_EXPERIMENTER",
		"OFPBIC_BAD_EXP_TYPE",
		"OFPBIC_BAD_LEN",
		"OFPBIC_EPERM",
		"OFPBIC_DUP_INST",
	},
	4: {
		"OFPBMC_BAD_TYPE",
		"OFPBMC_BAD_LEN",
		"OFPBMC_BAD_TAG",
		"OFPBMC_BAD_DL_ADDR_MASK",
		"OFPBMC_BAD_NW_ADDR_MASK",
		"OFPBMC_BAD_WILDCARDS",
		"OFPBMC_BAD_FIELD",
		"OFPBMC_BAD_VALUE",
		"OFPBMC_BAD_MASK",
		"OFPBMC_BAD_PREREQ",
		"OFPBMC_DUP_FIELD",
		"OFPBMC_EPERM",
	},
	5: {
		"OFPFMFC_UNKNOWN",
		"OFPFMFC_TABLE_FULL",
		"OFPFMFC_BAD_TABLE_ID",
		"OFPFMFC_OVERLAP",
		"OFPFMFC_EPERM",
		"OFPFMFC_BAD_TIMEOUT",
		"OFPFMFC_BAD_COMMAND",
		"OFPFMFC_BAD_FLAGS",
		"OFPFMFC_CANT_SYNC",
		"OFPFMFC_BAD_PRIORITY",
		"OFPFMFC_IS_SYNC",
	},
	6: {
		"OFPGMFC_GROUP_EXISTS",
		"OFPGMFC_INVALID_GROUP",
		"OFPGMFC_WEIGHT_UNSUPPORTED",
		"OFPGMFC_OUT_OF_GROUPS",
		"OFPGMFC_OUT_OF_BUCKETS",
		"OFPGMFC_CHAINING_UNSUPPORTED",
		"OFPGMFC_WATCH_UNSUPPORTED",
		"OFPGMFC_LOOP",
		"OFPGMFC_UNKNOWN_GROUP",
		"OFPGMFC_CHAINED_GROUP",
		"OFPGMFC_BAD_TYPE",
		"OFPGMFC_BAD_COMMAND",
		"OFPGMFC_BAD_BUCKET",
		"OFPGMFC_BAD_WATCH",
		"OFPGMFC_EPERM",
	},
	7: {
		"OFPPMFC_BAD_PORT",
		"OFPPMFC_BAD_HW_ADDR",
		"OFPPMFC_BAD_CONFIG",
		"OFPPMFC_BAD_ADVERTISE",
		"OFPPMFC_EPERM",
	},
	8: {
		"OFPTMFC_BAD_TABLE",
		"OFPTMFC_BAD_CONFIG",
		"OFPTMFC_EPERM",
	},
	9: {
		"OFPQOFC_BAD_PORT",
		"OFPQOFC_BAD_QUEUE",
		"OFPQOFC_EPERM",
	},
	10: {
		"OFPSCFC_BAD_FLAGS",
		"OFPSCFC_BAD_LEN",
		"OFPSCFC_EPERM",
	},
	11: {
		"OFPRRFC_STALE",
		"OFPRRFC_UNSUP",
		"OFPRRFC_BAD_ROLE",
	},
	12: {
		"OFPMMFC_UNKNOWN",
		"OFPMMFC_METER_EXISTS",
		"OFPMMFC_INVALID_METER",
		"OFPMMFC_UNKNOWN_METER",
		"OFPMMFC_BAD_COMMAND",
		"OFPMMFC_BAD_FLAGS",
		"OFPMMFC_BAD_RATE",
		"OFPMMFC_BAD_BURST",
		"OFPMMFC_BAD_BAND",
		"OFPMMFC_BAD_BAND_VALUE",
		"OFPMMFC_OUT_OF_METERS",
		"OFPMMFC_OUT_OF_BANDS",
	},
	13: {
		"OFPTFFC_BAD_TABLE",
		"OFPTFFC_BAD_METADATA",
		"OFPBPC_BAD_TYPE",
		"OFPBPC_BAD_LEN",
		"OFPBPC_BAD_VALUE",
		"OFPTFFC_EPERM",
	},
	14: {
		"OFPBPC_BAD_TYPE",
		"OFPBPC_BAD_LEN",
		"OFPBPC_BAD_VALUE",
		"OFPBPC_TOO_MANY",
		"OFPBPC_DUP_TYPE",
		"OFPBPC_BAD_EXPERIMENTER",
		"OFPBPC_BAD_EXP_TYPE",
		"OFPBPC_BAD_EXP_VALUE",
		"OFPBPC_EPERM",
	},
	15: {
		"OFPACFC_INVALID",
		"OFPACFC_UNSUPPORTED",
		"OFPACFC_EPERM",
	},
	16: {
		"OFPMOFC_UNKNOWN",
		"OFPMOFC_MONITOR_EXISTS",
		"OFPMOFC_INVALID_MONITOR",
		"OFPMOFC_UNKNOWN_MONITOR",
		"OFPMOFC_BAD_COMMAND",
		"OFPMOFC_BAD_FLAGS",
		"OFPMOFC_BAD_TABLE_ID",
		"OFPMOFC_BAD_OUT",
	},
	17: {
		"OFPBFC_UNKNOWN",
		"OFPBFC_EPERM",
		"OFPBFC_BAD_ID",
		"OFPBFC_BUNDLE_EXIST",
		"OFPBFC_BUNDLE_CLOSED",
		"OFPBFC_OUT_OF_BUNDLES",
		"OFPBFC_BAD_TYPE",
		"OFPBFC_BAD_FLAGS",
		"OFPBFC_MSG_BAD_LEN",
		"OFPBFC_MSG_BAD_XID",
		"OFPBFC_MSG_UNSUP",
		"OFPBFC_MSG_CONFLICT",
		"OFPBFC_MSG_TOO_MANY",
		"OFPBFC_MSG_FAILED",
		"OFPBFC_TIMEOUT",
		"OFPBFC_BUNDLE_IN_PROGRESS",
	},
}

// experimenterErrorName returns the name of an error of Nicira's or of ONF's,
// or "".
func experimenterErrorName(experimenter uint32, typ uint16) string {
	switch experimenter {
	case experimenterNicira:
		return niciraErrorName(typ)
	case experimenterONF:
		return onfErrorName(typ)
	}
	return ""
}

func niciraErrorName(typ uint16) string {
	switch typ {
	case 2:
		return "NXBRC_NXM_INVALID"
	case 3:
		return "NXBRC_NXM_BAD_TYPE"
	case 4:
		return "NXBRC_MUST_BE_ZERO"
	case 5:
		return "NXBRC_BAD_REASON"
	case 6:
		return "OFPMOFC_MONITOR_EXISTS"
	case 7:
		return "OFPMOFC_BAD_FLAGS"
	case 8:
		return "OFPMOFC_UNKNOWN_MONITOR"
	case 9:
		return "NXBRC_FM_BAD_EVENT"
	case 10:
		return "NXBRC_UNENCODABLE_ERROR"
	case 11:
		return "NXBAC_MUST_BE_ZERO"
	case 12:
		return "NXFMFC_HARDWARE"
	case 13:
		return "NXFMFC_BAD_TABLE_ID"
	case 15:
		return "NXBAC_BAD_CONJUNCTION"
	case 16:
		return "NXTTMFC_BAD_COMMAND"
	case 17:
		return "NXTTMFC_BAD_OPT_LEN"
	case 18:
		return "NXTTMFC_BAD_FIELD_IDX"
	case 19:
		return "NXTTMFC_TABLE_FULL"
	case 20:
		return "NXTTMFC_ALREADY_MAPPED"
	case 21:
		return "NXTTMFC_DUP_ENTRY"
	case 22:
		return "OFPBFC_BAD_VERSION"
	case 23:
		return "NXQOFC_QUEUE_ERROR"
	case 34:
		return "NXR_NOT_SUPPORTED"
	case 35:
		return "NXR_STALE"
	case 36:
		return "NXST_NOT_CONFIGURED"
	case 37:
		return "NXFMFC_INVALID_TLV_FIELD"
	case 38:
		return "NXTTMFC_INVALID_TLV_DEL"
	case 39:
		return "NXBAC_BAD_HEADER_TYPE"
	case 40:
		return "NXBAC_UNKNOWN_ED_PROP"
	case 41:
		return "NXBAC_BAD_ED_PROP"
	case 42:
		return "NXBAC_CT_DATAPATH_SUPPORT"
	case 43:
		return "NXBMC_CT_DATAPATH_SUPPORT"
	case 44:
		return "NXTFFC_DUP_TABLE"
	}
	return ""
}

func onfErrorName(typ uint16) string {
	switch typ {
	case 2300:
		return "OFPBFC_UNKNOWN"
	case 2301:
		return "OFPBFC_EPERM"
	case 2302:
		return "OFPBFC_BAD_ID"
	case 2303:
		return "OFPBFC_BUNDLE_EXIST"
	case 2304:
		return "OFPBFC_BUNDLE_CLOSED"
	case 2305:
		return "OFPBFC_OUT_OF_BUNDLES"
	case 2306:
		return "OFPBFC_BAD_TYPE"
	case 2307:
		return "OFPBFC_BAD_FLAGS"
	case 2308:
		return "OFPBFC_MSG_BAD_LEN"
	case 2309:
		return "OFPBFC_MSG_BAD_XID"
	case 2310:
		return "OFPBFC_MSG_UNSUP"
	case 2311:
		return "OFPBFC_MSG_CONFLICT"
	case 2312:
		return "OFPBFC_MSG_TOO_MANY"
	case 2313:
		return "OFPBFC_MSG_FAILED"
	case 2314:
		return "OFPBFC_TIMEOUT"
	case 2315:
		return "OFPBFC_BUNDLE_IN_PROGRESS"
	case 2360:
		return "OFPFMFC_BAD_PRIORITY"
	case 2370:
		return "OFPACFC_INVALID"
	case 2371:
		return "OFPACFC_UNSUPPORTED"
	case 2372:
		return "OFPACFC_EPERM"
	case 2600:
		return "OFPBIC_DUP_INST"
	case 2640:
		return "OFPBRC_MULTIPART_REQUEST_TIMEOUT"
	case 2641:
		return "OFPBRC_MULTIPART_REPLY_TIMEOUT"
	case 4250:
		return "OFPBAC_BAD_SET_MASK"
	case 4443:
		return "OFPBPC_TOO_MANY"
	case 4444:
		return "OFPBPC_DUP_TYPE"
	case 4445:
		return "OFPBPC_BAD_EXPERIMENTER"
	case 4446:
		return "OFPBPC_BAD_EXP_TYPE"
	case 4447:
		return "OFPBPC_BAD_EXP_VALUE"
	case 4448:
		return "OFPBPC_EPERM"
	}
	return ""
}

// niciraErrorName10 returns the name of an error in the form that OpenFlow 1.0
// has for Nicira's: flow monitor requests are answered so in every version.
func niciraErrorName10(typ, code uint16) string {
	switch uint32(typ)<<16 | uint32(code) {
	case 0x107:
		return "OFPBMC_BAD_FIELD"
	case 0x10100:
		return "NXBRC_NXM_INVALID"
	case 0x10101:
		return "NXBRC_NXM_BAD_TYPE"
	case 0x10102:
		return "OFPBMC_BAD_VALUE"
	case 0x10103:
		return "OFPBMC_BAD_MASK"
	case 0x10104:
		return "OFPBMC_BAD_PREREQ"
	case 0x10105:
		return "OFPBMC_DUP_FIELD"
	case 0x10106:
		return "OFPBMC_BAD_WILDCARDS"
	case 0x10108:
		return "NXBMC_CT_DATAPATH_SUPPORT"
	case 0x10109:
		return "NXBAC_CT_DATAPATH_SUPPORT"
	case 0x10200:
		return "OFPBRC_BAD_TABLE_ID"
	case 0x10201:
		return "OFPRRFC_BAD_ROLE"
	case 0x10202:
		return "OFPBRC_BAD_PORT"
	case 0x10203:
		return "NXBRC_MUST_BE_ZERO"
	case 0x10204:
		return "NXBRC_BAD_REASON"
	case 0x10205:
		return "OFPMOFC_MONITOR_EXISTS"
	case 0x10206:
		return "OFPMOFC_BAD_FLAGS"
	case 0x10207:
		return "OFPMOFC_UNKNOWN_MONITOR"
	case 0x10208:
		return "NXBRC_FM_BAD_EVENT"
	case 0x10209:
		return "NXBRC_UNENCODABLE_ERROR"
	case 0x1020a:
		return "OFPBAC_MATCH_INCONSISTENT"
	case 0x1020b:
		return "OFPBAC_BAD_SET_TYPE"
	case 0x1020c:
		return "OFPBAC_BAD_SET_LEN"
	case 0x1020d:
		return "OFPBAC_BAD_SET_ARGUMENT"
	case 0x1020f:
		return "NXTTMFC_BAD_COMMAND"
	case 0x10210:
		return "NXTTMFC_BAD_OPT_LEN"
	case 0x10211:
		return "NXTTMFC_BAD_FIELD_IDX"
	case 0x10212:
		return "NXTTMFC_TABLE_FULL"
	case 0x10213:
		return "NXTTMFC_ALREADY_MAPPED"
	case 0x10214:
		return "NXTTMFC_DUP_ENTRY"
	case 0x10215:
		return "NXR_NOT_SUPPORTED"
	case 0x10216:
		return "NXR_STALE"
	case 0x10217:
		return "NXST_NOT_CONFIGURED"
	case 0x10218:
		return "NXFMFC_INVALID_TLV_FIELD"
	case 0x10219:
		return "NXTTMFC_INVALID_TLV_DEL"
	case 0x20100:
		return "NXBAC_MUST_BE_ZERO"
	case 0x20101:
		return "OFPBIC_UNSUP_INST"
	case 0x2020e:
		return "NXBAC_BAD_CONJUNCTION"
	case 0x30102:
		return "OFPFMFC_BAD_FLAGS"
	case 0x50100:
		return "NXFMFC_HARDWARE"
	case 0x50101:
		return "NXFMFC_BAD_TABLE_ID"
	}
	return ""
}
