"""Permissions, where `/_control` has {"enforce_iam": true}: who calls may do what their policies say.

The keys of the announcement are root's and may do everything. Other keys must be an IAM user's or an assumed
role's; signatures are not checked. A call needs its own action, ec2:CreateTags where it brings tags, and
iam:PassRole where it hands over a role.
"""
