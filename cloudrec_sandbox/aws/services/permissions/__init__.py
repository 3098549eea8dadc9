"""Permissions, if `/_control` has {"enforce_iam": true}: a caller may do what its policies allow.

The keys of the announcement are root's and may do everything. Other keys must be an IAM user's or an assumed
role's, which its permissions boundary limits; signatures are not checked. `demands` says what a call needs,
by its operation and its parameters, on each resource; `policies` evaluates statements and conditions.
"""
